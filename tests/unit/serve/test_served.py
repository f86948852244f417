"""A detector as requests find it: thresholds by request, and loading from either kind of file."""

from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.serve.served import Served, Source, complaint
from macs.serve.settings import DEFAULT


def test_a_detector_without_calibration_confidences_keeps_one_share(exported: Path) -> None:
    served = Source(exported, threads=1).load()
    served.runtime.reference = None
    assert served.thresholds(keep=0.9) is served.values
    with pytest.raises(MacsError, match="without its calibration confidences"):
        served.thresholds(keep=0.8)
    assert served.describe(DEFAULT)["calibration"]["confidences"] == []


def test_batches_of_large_images_are_smaller(exported: Path) -> None:
    served = Source(exported, threads=1).load()
    assert isinstance(served, Served) and served.size == 16
    assert served.most(32) == 32 and served.most(4096) == 256


def test_the_complaint_of_a_command() -> None:
    assert complaint(["warning: x", "error: It is late.", "detail"]) == "It is late."
    assert complaint(["Killed"]) == "Killed" and complaint([]) == "it ended without a reason."
