"""No process of ours runs a Python file of the working folder, which may have come with a downloaded detector."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from macs.core.devices import _multiplies_bf16
from macs.core.errors import MacsError
from macs.core.interpreter import python
from macs.serve.loaded_detector import export_apart
from macs.training.distributed import start


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with files that the standard library's modules have the names of; the file that they write."""
    trace = tmp_path / "trace"
    for name in ("secrets", "types", "tempfile", "colorsys"):
        (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write({name!r})\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH")
    return trace


def test_the_trap_catches_a_careless_process(trap: Path) -> None:
    assert subprocess.run([sys.executable, "-c", "import secrets"], check=False).returncode == 9
    assert trap.read_text().startswith("secrets")


def test_a_plain_process(trap: Path) -> None:
    subprocess.run(python("-c", "import secrets, types, tempfile"), check=True)
    assert not trap.exists()


def test_exporting_a_detector_for_the_service(trap: Path, tmp_path: Path) -> None:
    (tmp_path / "d.safetensors").write_bytes(b"no detector")
    with pytest.raises(MacsError, match="cannot be exported: .*d.safetensors"):
        export_apart(tmp_path / "d.safetensors", tmp_path / "d.onnx", None, None)
    assert not trap.exists()


def test_trying_bf16(trap: Path) -> None:
    _multiplies_bf16.cache_clear()
    _multiplies_bf16()
    _multiplies_bf16.cache_clear()
    assert not trap.exists()


@pytest.mark.cluster
def test_training_on_two_devices(trap: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert start(2, 1, None, ["finetune", "--id", "nothing", "--outliers", "nothing"], cpu=True) == 2
    assert "nothing" in capfd.readouterr().err
    assert not trap.exists()


@pytest.mark.cluster
def test_a_worker_of_ray(trap: Path) -> None:
    from macs.core.clusters import connected

    def imported(name: str) -> str | None:
        return importlib.import_module(name).__file__

    (trap.parent / "code_of_my_own.py").touch()
    ray = connected(None, {"num_cpus": 1})
    try:
        found = ray.get([ray.remote(num_cpus=1)(imported).remote(name) for name in ("colorsys", "code_of_my_own")])
    finally:
        ray.shutdown()
    assert [Path(file).parent == trap.parent for file in found] == [False, True]
    assert not trap.exists()


COUNTED = """
import ctypes, sys
calls = []
class Library:
    def mallopt(self, *given):
        calls.append(given)
ctypes.CDLL = lambda name: Library()
{}
print(calls)
"""


def calls(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", COUNTED.format(code)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be told")
def test_a_program_decides_for_itself_and_a_command_asks_for_it() -> None:
    kept = "[(-1, -1), (-4, 0)]"
    assert calls("import macs; macs.keep_freed_memory(); assert 'torch' not in sys.modules") == kept
    assert calls("import macs, macs.core.interpreter") == "[]"
    command = "sys.argv = ['macs', '--version']\nfrom macs.__main__ import main\ntry: main()\nexcept SystemExit: pass"
    assert calls(command) == kept
