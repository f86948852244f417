"""Networks of torchvision by their names."""

from pathlib import Path
from typing import Any

import pytest
import torch

from borrowed import CLASSES
from macs import nets
from macs.core.errors import MacsError
from macs.data import Preparation

torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")

SMALL = "torchvision/shufflenet_v2_x0_5"


@pytest.mark.parametrize(
    ("model", "resize", "interpolation"),
    [("resnet50", 232, "bilinear"), ("resnet50.IMAGENET1K_V1", 256, "bilinear"), ("swin_t", 232, "bicubic")],
)
def test_the_preparation_is_that_of_the_published_weights(model: str, resize: int, interpolation: Any) -> None:
    imagenet = nets.NORMALISATIONS["imagenet"]
    expected = Preparation(224, resize, interpolation).normalised(imagenet)
    assert nets.usual_preparation(f"torchvision/{model}") == expected


def test_a_file_and_pretrained_weights_give_the_library_s_own_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, pixels = torchvision.models.shufflenet_v2_x0_5(num_classes=11).eval(), torch.rand(2, 3, 64, 64)
    torch.save(theirs.state_dict(), tmp_path / "x.pth")
    published = torchvision.models.ShuffleNet_V2_X0_5_Weights
    monkeypatch.setattr(published, "get_state_dict", lambda *_, **__: theirs.state_dict())
    for net in (nets.load(tmp_path / "x.pth", SMALL, 11).eval(), nets.build(SMALL, 11, pretrained=True).eval()):
        prepared = torchvision.transforms.functional.normalize(pixels, *nets.NORMALISATIONS["imagenet"])
        with torch.no_grad():
            assert torch.allclose(net(pixels), theirs(prepared), atol=1e-6)
    assert capsys.readouterr().err == ""
    nets.build(SMALL, CLASSES, pretrained=True)
    assert "pretrained has no last layer for 3 classes" in capsys.readouterr().err


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("<urlopen error [Errno -2] Name or service not known>")

    monkeypatch.setattr(torchvision.models.ShuffleNet_V2_X0_5_Weights, "get_state_dict", fail)
    with pytest.raises(MacsError, match=r"weights of torchvision/shufflenet_v2_x0_5 cannot be downloaded .*service"):
        nets.build(SMALL, CLASSES, pretrained=True)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision/resnet_18", "no network called 'torchvision/resnet_18' .* did you mean torchvision/resnet18"),
        ("torchvision/resnet50.V1", "no version of torchvision/resnet50 called 'V1'"),
        ("torchvision/fasterrcnn_resnet50_fpn", "no network called 'torchvision/fasterrcnn_resnet50_fpn'"),
        ("torchvision/googlenet", "other outputs besides the logits in training; use timm's"),
        ("torchvision/squeezenet1_0", "does not end in one linear layer"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, message: str) -> None:
    with pytest.raises(MacsError, match=message):
        nets.build(name, CLASSES)
