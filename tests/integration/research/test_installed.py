"""`macs reproduce` from a copy of the package without the repository, which is what a wheel installs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import macs
from repository import ROOT


def test_the_papers_tables_need_no_clone_and_the_study_says_that_it_needs_one(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "src" / "macs", tmp_path / "installed" / "macs", ignore=shutil.ignore_patterns("__pycache__")
    )
    script = ROOT / "tests" / "runtime" / "reproduced.py"
    alone = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    found = subprocess.check_output([sys.executable, "-c", "import macs; print(macs.__file__)"], text=True, env=alone)
    assert Path(found.strip()).is_relative_to(tmp_path) and found.strip() != macs.__file__
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, str(script)], cwd=work, env=alone, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
