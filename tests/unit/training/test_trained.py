"""One way to a trained network: a run folder, parts of which may be given otherwise, or all its parts."""

from pathlib import Path
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.training.trained import open_trained


def test_without_a_run_every_part_is_given(tmp_path: Path) -> None:
    parts: Any = {"net": "wrn-10-1", "checkpoint": tmp_path / "x.pt", "id": "digits"}
    found = open_trained(None, **parts)
    assert (found.preparation.size, found.score, found.spec, found.trained_on) == (32, "msp", None, None)
    for missing in parts:
        with pytest.raises(MacsError, match="Name a run folder, or give --net, --checkpoint and --images"):
            open_trained(None, **{**parts, missing: None}, images="--images")
    with pytest.raises(MacsError, match="size must be at least 1"):
        open_trained(None, **parts, size=0)
