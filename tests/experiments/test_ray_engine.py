"""Cells on a Ray cluster: the table of the serial engine, even if a worker is killed; and errors, in words."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from command import refused
from macs import methods, nets, training
from macs.core.errors import MacsError
from macs.core.version import __version__
from macs.data import ImageSet
from macs.experiments.cells import Cell, Examination
from macs.experiments.engine import SerialEngine
from macs.experiments.margins import sweep
from macs.experiments.ray_engine import RayEngine, Terms, check_machine, train_and_measure
from macs.training.recipe import Recipe
from macs.training.sources import Held, spec_of
from tiny import noise, stripes

RECIPE = Recipe(epochs=3, batch_in=32, batch_out=32, lr=0.02, precision="float32")
SEEN = Examination(stripes(40, seed=5), noise(40, seed=6))


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    ray = pytest.importorskip("ray")
    here = [str(Path(__file__).parents[1]), str(Path(nets.__file__).parents[2])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")])
    os.environ.update(RAY_worker_niceness="0")  # by default, workers yield to everything else on the machine
    ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def cell_of(root: Path, known: ImageSet, outliers: ImageSet, method: str = "oe") -> Cell:
    net = training.starting_net("wrn-10-1", classes=3)
    return Cell(root, method, spec_of(net, known, outliers, methods.build(method), RECIPE))


def workers() -> dict[int, str]:
    """The processes that Ray has given a task of ours."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_text()
        except OSError:
            continue
        if name.startswith("ray::train_and_measure"):
            found[int(folder.name)] = name
    return found


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc").exists(), reason="the workers are found in /proc")
def test_the_table_of_the_serial_engine_though_a_worker_is_killed(
    ray: Any, one_thread: None, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    start = nets.build("wrn-10-1", classes=3)
    options: Any = {
        "validation": (SEEN.val, SEEN.val_outliers),
        "test": stripes(40, seed=7),
        "ood": {"noise": noise(40, seed=8)},
        "margins": (0.0, 0.3, 0.6, 0.9),
        "seeds": (0, 1),
        "recipe": RECIPE,
        "progress": False,
    }
    killed: list[int] = []

    def kill_one() -> None:
        """Kill a worker while a cell is between its first and its last epoch."""
        while not killed:
            begun = {path.parent for path in (tmp_path / "ray").rglob("metrics.jsonl") if path.stat().st_size}
            if any(not (folder / "net.safetensors").exists() for folder in begun):
                for pid in workers():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                    return
            time.sleep(0.02)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    by_ray = sweep(start, known, outliers, run=tmp_path / "ray", engine=RayEngine(progress=False), **options)
    thread.join(1)
    assert killed
    serial = sweep(start, known, outliers, run=tmp_path / "serial", engine=SerialEngine(progress=False), **options)
    assert by_ray.as_csv() == serial.as_csv() and len(by_ray.as_csv().splitlines()) == 9
    # With either engine, the other one's cells are found again.
    again = sweep(start, known, outliers, run=tmp_path / "ray", engine=SerialEngine(progress=False), **options)
    assert again.as_csv() == serial.as_csv()


@pytest.mark.cluster
def test_a_cell_that_fails_ends_no_other_and_names_its_machine(
    ray: Any, one_thread: None, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    engine = RayEngine(progress=False)
    engine.hold(Held.of([known, outliers]))
    fine, wrong = cell_of(tmp_path, known, outliers), cell_of(tmp_path, known, outliers, "macs")
    (tmp_path / "macs").write_text("a file where the cell wants a folder")
    done = {each.cell.name: each for each in engine.run([wrong, fine], SEEN)}
    assert done["oe"].value().validation.accuracy is not None
    assert done["macs"].result is None and "machine" in str(done["macs"].error)


@pytest.mark.cluster
def test_a_cell_needs_what_the_cluster_has(ray: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="has 2 CPUs and 0 GPUs, but a task needs .* 1 GPUs"):
        next(RayEngine(gpus=1).run([cell_of(tmp_path, known, outliers)], SEEN))


def test_another_version_or_precision_is_refused(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    cell = cell_of(tmp_path, known, outliers)
    check_machine(cell, Terms(None, "first", 1, __version__))
    with pytest.raises(MacsError, match="and the driver 0.0.1; install the same version"):
        check_machine(cell, Terms(None, "first", 1, "0.0.1"))
    vars(cell)["key"] = "that of a driver with bf16"
    with pytest.raises(MacsError, match="another precision than the driver; set --precision"):
        check_machine(cell, Terms(None, "first", 1, __version__))


def test_a_task_does_what_the_serial_engine_does(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    held = Held.of([known, outliers])
    terms = Terms(None, "first", torch.get_num_threads(), __version__)
    done = train_and_measure(cell_of(tmp_path / "a", known, outliers), (held, SEEN), terms)
    engine = SerialEngine(progress=False)
    engine.hold(held)
    (expected,) = engine.run([cell_of(tmp_path / "b", known, outliers)], SEEN)
    assert done.value().weights == expected.value().weights
    assert done.value().validation == expected.value().validation
    failed = train_and_measure(cell_of(tmp_path / "c", known, outliers), (Held(), SEEN), terms)
    assert isinstance(failed.error, MacsError) and str(failed.error).startswith("On the machine ")


def test_options_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ("sweep", "--id", "digits", "--outliers", "digits-outliers", "--net", "wrn-10-1")
    assert "--address is for --engine ray" in refused(capsys, *sets, "--address", "auto")
    assert "--gpus must be at least 0" in refused(capsys, *sets, "--engine", "ray", "--gpus", "-1")
    assert "--gpus is for --engine ray" in refused(capsys, "reproduce", "table1", "--gpus", "1")
