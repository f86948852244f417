"""The model card that `macs report --card` writes: what the run recorded, what was measured, and what is missing."""

import pytest

from command import refused


def test_a_detector_has_no_record_to_write_it_from(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "report", "--detector", "d.onnx", "--id", "digits", "--card", "card.md")
    assert "record of a run" in line
