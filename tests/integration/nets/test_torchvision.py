"""Networks of torchvision by their names."""

from pathlib import Path

import pytest

from borrowed import built, check_everything

SMALL = "torchvision/shufflenet_v2_x0_5"


@pytest.mark.architectures
def test_a_network_goes_through_everything(tmp_path: Path) -> None:
    check_everything(built(SMALL, 64), tmp_path, signed=False)


@pytest.mark.architectures
@pytest.mark.parametrize(
    ("model", "signed"), [("resnet18", False), ("regnet_x_400mf", False), ("mnasnet0_5", False), ("swin_t", True)]
)
def test_several_architectures_go_through_everything(model: str, signed: bool, tmp_path: Path) -> None:
    check_everything(built(f"torchvision/{model}", 64), tmp_path, signed)
