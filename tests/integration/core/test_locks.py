"""Two processes and one lock: the second waits, a cell is trained once, and a killed process keeps nothing."""

import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from elsewhere import start_cell
from macs.core.files import locked

HOLD = """
import sys, time
from pathlib import Path
from macs.core.files import locked
with locked(Path(sys.argv[1]), "waiting"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
pytestmark = pytest.mark.skipif(find_spec("fcntl") is None, reason="this system has no fcntl")


def start(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_second_waits_until_the_first_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start(HOLD, tmp_path / "x.lock", 1.0)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    began = time.monotonic()
    with locked(tmp_path / "x.lock", "Waiting for it ..."):
        assert time.monotonic() - began > 0.5
    assert "Waiting for it ..." in capsys.readouterr().err
    assert first.wait(60) == 0


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start(HOLD, tmp_path / "x.lock", 600)
    assert first.stdout is not None and first.stdout.readline() == "held\n"
    first.send_signal(signal.SIGKILL)
    first.wait(60)
    with locked(tmp_path / "x.lock", "Waiting for it ..."):
        pass
    assert capsys.readouterr().err == ""


def test_two_processes_train_a_cell_once(tmp_path: Path) -> None:
    both = [start_cell(tmp_path / "cells", tmp_path / f"{name}.txt") for name in ("one", "other")]
    for child in both:
        child.join(300)
    told = [(tmp_path / f"{name}.txt").read_text() for name in ("one", "other")]
    assert [child.exitcode for child in both] == [0, 0], told
    assert told[0].splitlines()[-1] == told[1].splitlines()[-1]  # the hash of the weights
    assert sorted("oe epoch 6/6" in text for text in told) == [False, True]  # one trained, the other waited
    assert sum("Another process trains cell" in text for text in told) == 1


def test_a_cell_whose_process_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    killed = start_cell(tmp_path / "cells", tmp_path / "killed.txt")
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("state.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.kill()
    killed.join(60)
    assert not list(tmp_path.rglob("net.safetensors"))
    again = start_cell(tmp_path / "cells", tmp_path / "again.txt")
    again.join(300)
    assert again.exitcode == 0 and "Another process" not in (tmp_path / "again.txt").read_text()
    assert len(list(tmp_path.rglob("net.safetensors"))) == 1
