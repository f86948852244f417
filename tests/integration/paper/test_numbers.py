"""The paper's numbers are complete, read off correctly, and agree wherever the paper prints one twice."""

import subprocess
import sys


def test_importing_reads_no_file_and_no_torch() -> None:
    code = (
        "import sys; from macs.paper import numbers as n; print('torch' in sys.modules, n._file.cache_info().currsize)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "0"]
