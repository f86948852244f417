"""The metrics against scikit-learn, brute force over thresholds in exact fractions, and numbers worked out by hand."""

import subprocess
import sys


def test_importing_the_metrics_does_not_import_torch() -> None:
    code = "import sys, macs.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
