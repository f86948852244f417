"""Two processes and one cell: it is trained once, and a killed process does not keep it."""

import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from macs.experiments.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from macs.experiments.locks import locked
with locked(Path(sys.argv[1]), "waiting"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""
TRAIN = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from macs import methods, training
from macs.experiments.cells import Cell, Examination
from macs.experiments.engine import SerialEngine
from macs.training.recipe import Recipe
from macs.training.sources import Held, spec_of
from tiny import noise, stripes
train, outliers = stripes(192, seed=1), noise(256, seed=3)
recipe = Recipe(epochs=6, batch_in=32, batch_out=32, lr=0.02, precision="float32")
net = training.starting_net("wrn-10-1", classes=3)
cell = Cell(Path(sys.argv[1]), "cell", spec_of(net, train, outliers, methods.build("oe"), recipe))
engine = SerialEngine(progress=True)
engine.hold(Held.of([train, outliers]))
print("ready", flush=True)
(done,) = engine.run([cell], Examination(stripes(40, seed=5), noise(40, seed=6)))
print(done.value().weights, flush=True)
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
    code = TRAIN.format(tests=str(Path(__file__).parents[1]))
    both = [start(code, tmp_path) for _ in range(2)]
    told = [child.communicate(timeout=300) for child in both]
    assert [child.returncode for child in both] == [0, 0], told
    assert told[0][0] == told[1][0]
    assert sorted("oe epoch 6/6" in err for _, err in told) == [False, True]  # one trained, the other waited
    assert sum("Another process trains cell" in err for _, err in told) == 1


def test_a_cell_whose_process_was_killed_is_gone_on_with(tmp_path: Path) -> None:
    code = TRAIN.format(tests=str(Path(__file__).parents[1]))
    killed = start(code, tmp_path)
    assert killed.stdout is not None and killed.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("state.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    assert not list(tmp_path.rglob("net.safetensors"))
    again = start(code, tmp_path)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0 and "Another process" not in err
    assert len(list(tmp_path.rglob("net.safetensors"))) == 1
