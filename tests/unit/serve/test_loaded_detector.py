"""A detector as requests find it: thresholds by request, and loading from either kind of file."""

from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.serve.loaded_detector import DetectorFile, LoadedDetector, complaint
from macs.serve.settings import DEFAULT


def test_a_detector_without_calibration_confidences_keeps_one_share(exported: Path) -> None:
    detector = DetectorFile(exported, threads=1).load()
    detector.runtime.reference = None
    assert detector.thresholds(keep=0.9) is detector.values
    with pytest.raises(MacsError, match="without its calibration confidences"):
        detector.thresholds(keep=0.8)
    assert detector.describe(DEFAULT)["calibration"]["confidences"] == []


def test_batches_of_large_images_are_smaller(exported: Path) -> None:
    detector = DetectorFile(exported, threads=1).load()
    assert isinstance(detector, LoadedDetector) and detector.size == 16
    assert detector.largest_batch == 256


def test_the_complaint_of_a_command() -> None:
    assert complaint(["warning: x", "error: It is late.", "detail"]) == "It is late."
    assert complaint(["Killed"]) == "Killed" and complaint([]) == "it ended without a reason."
