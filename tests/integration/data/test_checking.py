"""What is on disk, counted by hand: whole, partial, broken or not there."""

from pathlib import Path

import pytest

from macs.data.download import check
from published import IMAGES


@pytest.mark.data
def test_nothing_real_is_broken(data_root: Path) -> None:
    names = [name for name in IMAGES if name != "places365"]  # whose thousands of images take a while
    found = {(each.name, each.split): each for each in check(names, data_root)}
    assert not [why for each in found.values() for why in each.broken]
    assert found["cifar10", "test"].status in ("complete", "missing")
