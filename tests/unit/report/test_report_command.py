"""`macs report` as a user meets it."""

from pathlib import Path

import pytest

from macs import demo
from macs.cli.report import _default_ood_sets
from macs.core.errors import MacsError


def test_without_names_the_ood_sets_that_are_there_are_taken(tmp_path: Path) -> None:
    pytest.importorskip("skimage", reason="the digits benchmark comes with scikit-image")
    assert set(_default_ood_sets("digits", tmp_path)) == set(demo.OOD.values())
    with pytest.raises(MacsError, match="--ood"):
        _default_ood_sets("cifar10", tmp_path)
