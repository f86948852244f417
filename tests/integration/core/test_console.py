"""What is shown while work goes on: never on standard output, and only where somebody looks."""

import subprocess
import sys


def test_the_console_needs_no_torch() -> None:
    code = "import sys, macs.core.console; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
