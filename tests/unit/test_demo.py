"""The demo's seeds and images."""

from pathlib import Path

import pytest

from macs import demo
from macs.core.errors import MacsError
from macs.data import load


@pytest.mark.parametrize("seeds", [0, -1])
def test_at_least_one_seed_is_trained(seeds: int, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="at least one training seed"):
        demo.demo(tmp_path, seeds=seeds)


def test_its_ood_sets_hold_no_training_image() -> None:
    train = {image.tobytes() for name, split in (("digits", "train"), ("digits-outliers", "train")) for image in
             load(name, split).pixels[:]}  # fmt: skip
    for name in demo.OOD.values():
        assert not train & {image.tobytes() for image in load(name, "test").pixels[:]}
