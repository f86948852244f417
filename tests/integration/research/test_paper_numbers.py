"""Importing the paper's numbers costs nothing until they are asked for."""

import subprocess
import sys


def test_importing_reads_no_file_and_no_torch() -> None:
    code = "import sys; from macs.research import paper_numbers; size = paper_numbers._file.cache_info().currsize"
    code += "; print('torch' in sys.modules, size)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "0"]
