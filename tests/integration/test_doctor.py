"""What `macs doctor` finds, compared with what the package's own metadata, torch and the catalogue say."""

import importlib.metadata
import os
import subprocess
import sys

import pytest

from command import needs_torch, run


def test_it_works_where_neither_torch_nor_anything_else_can_be_imported() -> None:
    """What is left is runtime.txt without ONNX Runtime."""
    code = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "onnxruntime", "scipy", "sklearn", "fastapi"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
import importlib.util
real = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return real(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
from macs import doctor
doctor.EXTRAS = {}
sys.argv = ["macs", "doctor"]
from macs.__main__ import main
main()
"""
    bare = {name: value for name, value in os.environ.items() if name != "MACS_DATA"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=bare)
    assert done.returncode == 0, done.stderr
    assert "torch: not installed: training" in done.stdout and "ONNX Runtime: not installed" in done.stdout
    assert "pip install macs-ood" in done.stdout and done.stderr == ""


def test_the_version_names_what_a_bug_report_needs_and_imports_none_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    run("--version")
    line = capsys.readouterr().out.strip()
    assert line.startswith("macs ") and "\n" not in line
    for package in ("torch", "onnxruntime"):
        assert f"{package} {importlib.metadata.version(package)}" in line
    assert not needs_torch("--version")
