"""Every dataset of the catalogue from files as they are distributed, and what is said when they are not there."""

import subprocess
import sys


def test_importing_the_data_package_loads_neither_torch_nor_the_decoders() -> None:
    code = "import sys, macs.data; print([m for m in ('torch', 'PIL', 'scipy', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
