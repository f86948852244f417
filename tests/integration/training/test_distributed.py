"""Several processes give the loss and the gradient of one, for every method; a training may change their number."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import macs
from command import refused
from macs import methods
from macs.core.processes import ALONE, Processes
from macs.methods import Batch, Method, Step
from macs.training.distributed import connect, shared_norms, world
from one_of_several import METHODS, SIZES, first_steps, smooth_activations
from repository import ROOT, SUPPORT
from tiny import noise, stripes

DOCS = ROOT / "docs/scaling.md"
SCRIPT = SUPPORT / "one_of_several.py"
Found = dict[str, dict[str, Tensor]]


def environment(**more: str) -> dict[str, str]:
    here = os.pathsep.join(filter(None, [str(SUPPORT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": here, "OMP_NUM_THREADS": "1", **more}


def by_processes(count: int, folder: Path, *kind: str) -> list[Found]:
    """What each of several processes finds."""
    started = [
        subprocess.Popen([sys.executable, SCRIPT, str(folder), str(rank), str(count), *kind], env=environment())
        for rank in range(count)
    ]
    assert [process.wait() for process in started] == [0] * count
    return [torch.load(folder / f"{rank}.pt") for rank in range(count)]


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def alone(one_thread: None) -> Found:
    return first_steps(ALONE)


def compare(found: Found, expected: Found, tolerance: float) -> None:
    """Every tensor equals the expected one, up to a share of the latter's largest entry."""
    assert found.keys() == expected.keys()
    for case, values in expected.items():
        assert found[case].keys() == values.keys()
        for name, value in values.items():
            size = value.abs().max()
            difference = (found[case][name] - value).abs().max()
            assert difference <= tolerance * size, f"{case} {name}: {difference:.2g} of {size:.2g}"


@pytest.mark.cluster
@pytest.mark.parametrize("count", [2, 4])
def test_loss_and_gradients_of_every_method_are_those_of_one_process(count: int, alone: Found, tmp_path: Path) -> None:
    assert {name for name, _ in METHODS} == set(methods.available()) and len(alone) == len(METHODS) * len(SIZES)
    for found in by_processes(count, tmp_path):
        compare(found, alone, 2e-6)


@pytest.mark.cluster
@pytest.mark.parametrize("count", [2, 4])
def test_in_float32_rounding_alone_differs_where_the_network_is_smooth(
    count: int, one_thread: None, tmp_path: Path
) -> None:
    with smooth_activations():
        expected = first_steps(ALONE, torch.float32)
    for found in by_processes(count, tmp_path, "smooth"):
        compare(found, expected, 1e-4)


def test_a_step_that_does_not_gather_is_refused() -> None:
    class Own(Method):
        def step(self, net: nn.Module, batch: Batch) -> Step:
            logits = net(batch.images)
            return Step(logits.sum(), logits, logits)

    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    whole = torch.tensor([0, 1, 2, 0])
    batch = Batch.part(Processes(0, 2), torch.rand(2, 3, 2, 2), whole, torch.rand(1, 3, 2, 2), 2)
    with pytest.raises(macs.MacsError, match="from the images of one process; gather the logits"):
        methods.check_step(Own().step(net, batch), Own(), batch)
    alone = Batch(batch.images, batch.labels, batch.outliers)
    methods.check_step(Own().step(net, alone), Own(), alone)


def test_alone_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "8")  # as some schedulers set it for processes that know nothing of each other
    assert world() == (1, 1)
    net = macs.nets.build("wrn-10-1", classes=3)
    with shared_norms(net, ALONE, synchronised=True):
        assert not any("forward" in vars(module) for module in net.modules())


def test_a_batch_must_have_a_row_for_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(macs.MacsError, match="A batch of 4 cannot be shared out to 8 processes"):
        connect(macs.Recipe(batch_in=4), stripes(40, 0), noise(40, 1))
    with pytest.raises(macs.MacsError, match="A batch of 2 "):
        connect(macs.Recipe(batch_in=8, batch_out=2), stripes(40, 0), noise(40, 1))
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(macs.MacsError, match="must be whole numbers"):
        world()


def training(run: Path, epochs: int = 2, *more: str) -> list[str]:
    options = f"--net wrn-10-1 --size 16 --epochs {epochs} --epoch-size 128 --batch-in 32 --batch-out 32 --lr 0.01"
    sets = ["--id", "digits", "--outliers", "digits-outliers", "--run", str(run)]
    return ["finetune", *sets, *options.split(), "--precision", "float32", "--dropout", "0", *more]


def macs_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "macs", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)


def weights(run: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(run / "net.safetensors")


def closeness(first: Path, second: Path) -> float:
    """How far two networks are apart, as a share of the length of all weights."""
    one, other = (torch.cat([value.double().flatten() for value in weights(run).values()]) for run in (first, second))
    return float((one - other).norm() / one.norm())


@pytest.mark.cluster
def test_a_training_on_two_devices_is_that_on_one_and_may_be_resumed_on_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert macs_command(*training(one, 2, "--sync-bn")).returncode == 0
    done = macs_command(*training(two, 2, "--sync-bn", "--devices", "2", "--json"))
    assert done.returncode == 0, done.stderr
    assert ["epoch" in line for line in done.stderr.split("\n")[1:3]] == [True, True]  # and nothing of other libraries
    first, second = ([json.loads(line) for line in (run / "metrics.jsonl").open()] for run in (one, two))
    for a, b in zip(first, second, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3) and a["mcd"] == pytest.approx(b["mcd"], rel=2e-2)
    assert json.loads(done.stdout)["history"] == second
    assert closeness(one, two) < 0.01

    (two / "net.safetensors").unlink()  # as if it had been killed before its last file
    resumed = macs_command(*training(two, 2, "--sync-bn", "--resume"))
    assert resumed.returncode == 0, resumed.stderr
    assert "was trained by 2 processes so far and continues with 1" in resumed.stderr
    assert closeness(one, two) < 0.01


@pytest.mark.cluster
def test_several_processes_go_back_to_the_same_start(tmp_path: Path) -> None:
    start, one, two = tmp_path / "start", tmp_path / "one", tmp_path / "two"
    assert macs_command(*training(start, 1)).returncode == 0
    back = ("--checkpoint", str(start), "--start-share", "0.9", "--sync-bn")
    assert macs_command(*training(one, 1, *back)).returncode == 0
    done = macs_command(*training(two, 1, *back, "--devices", "2"))
    assert done.returncode == 0, done.stderr
    assert closeness(one, two) < 0.001 < closeness(start, one)


@pytest.mark.cluster
def test_torchrun_does_the_same_and_frozen_backbones_share_their_features(tmp_path: Path) -> None:
    arguments = training(tmp_path / "run", 1, "--freeze", "backbone", "--accumulate", "2")
    (documented,) = (line.strip() for line in DOCS.read_text().splitlines() if line.strip().startswith("torchrun"))
    words = documented.partition(" finetune ")[0].replace("--nproc-per-node 4", "--nproc-per-node 2").split()
    torchrun = [str(Path(sys.executable).with_name("torchrun")), *words[1:]]
    done = subprocess.run([*torchrun, *arguments], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("The run is in") == 1 and done.stderr.count("starts from random weights") == 1
    assert macs_command(*training(tmp_path / "one", 1, "--freeze", "backbone")).returncode == 0
    assert closeness(tmp_path / "one", tmp_path / "run") < 1e-4  # evaluation mode: nothing but rounding differs


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "macs", *training(tmp_path / "run", 500, "--devices", "2")]
    process = subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/metrics.jsonl").exists() or not (tmp_path / "run/metrics.jsonl").read_text():
        assert process.poll() is None
        time.sleep(0.2)
    yield process
    process.kill()


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc").exists(), reason="the processes are found in /proc")
def test_a_process_that_is_killed_ends_the_others_and_nothing_is_lost(running: Any, tmp_path: Path) -> None:
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    told = running.communicate()[1]
    assert running.returncode == 2 and "Traceback" not in told
    assert (
        told.strip().splitlines()[-1].startswith("error: Process 2 of 2 was ended by signal 9") and "--resume" in told
    )
    assert (tmp_path / "run/state.pt").exists() and not (tmp_path / "run/net.safetensors").exists()


def test_wrong_numbers_of_devices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def said(*more: str) -> str:
        return refused(capsys, *training(tmp_path / "run", 1, *more))

    assert "--devices must be at least 1" in said("--devices", "0")
    assert "--nodes must be at least 1" in said("--nodes", "-1")
    assert "with --rendezvous and the HOST:PORT" in said("--nodes", "2")
    assert "with --rendezvous and the HOST:PORT" in said("--devices", "2", "--nodes", "2", "--rendezvous", "head")
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert "torchrun has started 2 processes, not 3" in said("--devices", "3")
    assert not (tmp_path / "run").exists()
