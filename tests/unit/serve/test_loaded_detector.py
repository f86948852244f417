"""A detector as requests find it: thresholds by request, and loading from either kind of file."""

from pathlib import Path

from macs.serve.loaded_detector import DetectorFile, LoadedDetector, complaint


def test_batches_of_large_images_are_smaller(exported: Path) -> None:
    detector = DetectorFile(exported, threads=1).load()
    assert isinstance(detector, LoadedDetector) and detector.size == 16
    assert detector.largest_batch == 256


def test_the_complaint_of_a_command() -> None:
    assert complaint(["warning: x", "error: It is late.", "detail"]) == "It is late."
    assert complaint(["Killed"]) == "Killed" and complaint([]) == "it ended without a reason."
