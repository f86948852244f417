"""The draws: their sizes, which images they take, and what is refused."""

import subprocess
import sys


def test_a_protocol_is_known_without_torch() -> None:
    code = "import sys, macs.evaluation.protocol; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
