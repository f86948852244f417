"""Figures in another process."""

import os
import subprocess
import sys
from pathlib import Path

from macs import figures
from macs.research.paper_publication import paper_boxes


def test_another_process_and_user_get_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the hash seed and matplotlibrc are; and matplotlib comes in only with the first figure."""
    (tmp_path / "matplotlibrc").write_text("font.size: 30\naxes.grid: True\nlines.linewidth: 9\n")
    code = (
        "import sys, pathlib; from macs import figures as f; from macs.research.paper_publication import paper_boxes;"
        "print('matplotlib' in sys.modules); f.save(f.confidence_boxes(paper_boxes()), pathlib.Path(sys.argv[1]));"
        "print('torch' in sys.modules)"
    )
    theirs = {"PYTHONHASHSEED": "7", "MATPLOTLIBRC": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "theirs")]
    printed = subprocess.check_output(command, text=True, env=os.environ | theirs)
    assert printed.split() == ["False"] * 2
    for path in figures.save(figures.confidence_boxes(paper_boxes()), tmp_path / "ours"):
        assert path.read_bytes() == path.with_stem("theirs").read_bytes()
