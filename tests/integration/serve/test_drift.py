"""The drift test against its definition, by brute force, and its guarantee, by simulation."""

import subprocess
import sys

from macs.serve.drift import RATE, DriftTest


def test_no_images_are_no_evidence_and_the_module_needs_no_torch() -> None:
    test = DriftTest(100)
    test.update([])
    assert test.state() == {
        "alarm": False,
        "alarm_after": None,
        "evidence": 0,
        "images": 0,
        "false_alarm_rate": RATE,
        "calibration_images": 100,
    }
    code = "import sys, macs.serve.drift; sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
