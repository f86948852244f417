"""Cells on a Ray cluster: the table of the serial engine, even if a worker is killed; and errors, in words."""

import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from command import refused
from macs import methods, nets, training
from macs.core import __version__
from macs.core.clusters import connected
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.experiments.cells import Cell, Examination, SerialEngine
from macs.experiments.margins import sweep
from macs.experiments.mirrors import Mirror
from macs.experiments.ray_engine import RayEngine, Terms, check_machine, outcome, train_and_measure
from macs.training.recipe import Recipe
from macs.training.sources import Held, Training
from repository import SUPPORT
from s3_server import bucket
from tiny import noise, stripes

RECIPE = Recipe(epochs=3, batch_in=32, batch_out=32, lr=0.02, precision="float32")
START = training.starting_net("wrn-10-1", classes=3)
SEEN = Examination(stripes(40, seed=5), noise(40, seed=6))


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    with bucket() as url:
        yield url


@pytest.fixture(scope="module")
def ray(s3: str) -> Iterator[Any]:
    """A cluster that was started after the S3 server, whose address its workers inherit."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    here = [str(SUPPORT), str(Path(nets.__file__).parents[2])]
    os.environ["PYTHONPATH"] = os.pathsep.join([*here, os.environ.get("PYTHONPATH", "")])
    os.environ.update(RAY_worker_niceness="0")  # by default, workers yield to everything else on the machine
    ray = connected(None, {"num_cpus": 2, "object_store_memory": 200_000_000})
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
    return Cell(root, method, Training(net, known, outliers, methods.build(method), RECIPE).spec)


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


OPTIONS: Any = {
    "validation": (SEEN.val, SEEN.val_outliers),
    "test": stripes(40, seed=7),
    "ood": {"noise": noise(40, seed=8)},
    "margins": (0.0, 0.3, 0.6, 0.9),
    "seeds": (0, 1),
    "recipe": RECIPE,
    "progress": False,
}


@contextmanager
def one_worker_killed(begun: Callable[[], bool]) -> Iterator[None]:
    """Kill a worker as soon as a cell is between its first and its last epoch."""
    killed: list[int] = []
    ended = threading.Event()

    def kill_one() -> None:
        while not killed and not ended.wait(0.02):
            for pid in [*workers()][:1] if begun() else ():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill_one, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert killed


@pytest.fixture(scope="module")
def by_one_after_the_other(known: ImageSet, outliers: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of the serial engine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    run = tmp_path_factory.mktemp("serial")
    table = sweep(START, known, outliers, run=run, engine=SerialEngine(progress=False), **OPTIONS).as_csv()
    torch.set_num_threads(threads)
    assert len(table.splitlines()) == 9
    return table


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc").exists(), reason="the workers are found in /proc")
def test_the_table_of_the_serial_engine_though_a_worker_is_killed(
    ray: Any, one_thread: None, known: ImageSet, outliers: ImageSet, by_one_after_the_other: str, tmp_path: Path
) -> None:
    def begun() -> bool:
        runs = [path.parent for path in tmp_path.rglob("metrics.jsonl") if path.stat().st_size]
        return any(not (folder / "net.safetensors").exists() for folder in runs)

    with one_worker_killed(begun):
        by_ray = sweep(START, known, outliers, run=tmp_path, engine=RayEngine(progress=False), **OPTIONS)
    assert by_ray.as_csv() == by_one_after_the_other
    # With either engine, the other one's cells are found again.
    again = sweep(START, known, outliers, run=tmp_path, engine=SerialEngine(progress=False), **OPTIONS)
    assert again.as_csv() == by_one_after_the_other


@pytest.mark.cluster
@pytest.mark.skipif(not Path("/proc").exists(), reason="the workers are found in /proc")
def test_results_behind_a_url_though_a_worker_is_killed(
    ray: Any,
    s3: str,
    one_thread: None,
    known: ImageSet,
    outliers: ImageSet,
    by_one_after_the_other: str,
    tmp_path: Path,
) -> None:
    import s3fs

    system = s3fs.S3FileSystem()

    def names() -> list[str]:
        system.invalidate_cache()
        return [path.rpartition("/")[2] for path in system.find("bucket/sweep")]

    def begun() -> bool:
        return names().count("state.pt") > names().count("net.safetensors")

    def swept(folder: str) -> str:
        engine = RayEngine(progress=False, mirror=Mirror(f"{s3}/sweep", tmp_path / folder))
        return sweep(START, known, outliers, run=tmp_path / folder, engine=engine, **OPTIONS).as_csv()

    with one_worker_killed(begun):
        assert swept("driver") == by_one_after_the_other
    there = names()
    assert there.count("net.safetensors") == 8 and not any(name.startswith(".") for name in there)
    # Another driver, without a copy of its own, finds every cell again.
    written = {path: system.info(path)["LastModified"] for path in system.find("bucket/sweep")}
    assert swept("another driver") == by_one_after_the_other
    system.invalidate_cache()
    assert {path: system.info(path)["LastModified"] for path in system.find("bucket/sweep")} == written


@pytest.mark.cluster
def test_a_cell_that_fails_ends_no_other_and_names_its_machine(
    ray: Any, one_thread: None, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    held = Held.of([known, outliers])
    fine, wrong = cell_of(tmp_path, known, outliers), cell_of(tmp_path, known, outliers, "macs")
    (tmp_path / "macs").write_text("a file where the cell wants a folder")
    done = {each.cell.name: each for each in RayEngine(progress=False).run([wrong, fine], SEEN, held)}
    assert done["oe"].value().validation.accuracy is not None
    assert done["macs"].result is None and "machine" in str(done["macs"].error)


@pytest.mark.cluster
def test_a_machine_without_the_package(ray: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    def fails() -> None:
        importlib.import_module("a_package_that_is_not_there")

    done = outcome(ray, cell_of(tmp_path, known, outliers), ray.remote(max_retries=0)(fails).remote())
    assert "oe could not begin on its machine (No module named 'a_package_that_is_not_there')" in str(done.error)
    assert f"install macs {__version__} on every machine" in str(done.error)


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
    done = train_and_measure(cell_of(tmp_path / "a", known, outliers), (held, SEEN), None, terms)
    (expected,) = SerialEngine(progress=False).run([cell_of(tmp_path / "b", known, outliers)], SEEN, held)
    assert done.value().weights == expected.value().weights
    assert done.value().validation == expected.value().validation
    failed = train_and_measure(cell_of(tmp_path / "c", known, outliers), (Held(), SEEN), None, terms)
    assert isinstance(failed.error, MacsError) and str(failed.error).startswith("On the machine ")


def test_a_task_works_in_a_copy_of_what_is_behind_a_url(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    net = training.starting_net("wrn-10-1", classes=3)
    nets.save(net, tmp_path / "driver/start/net.safetensors", class_names=known.classes)
    start = nets.load(tmp_path / "driver/start/net.safetensors", "wrn-10-1", 3)
    trained = Training(start, known, outliers, methods.build("oe"), RECIPE)
    cell = Cell(tmp_path / "driver/cells", "oe", trained.spec)
    store = tmp_path / "store"
    terms = Terms(None, "first", 1, __version__, Mirror(f"file://{store}", tmp_path / "driver"))
    held = replace(trained.held, nets={})
    (tmp_path / "driver/start/net.safetensors").unlink()  # it is not on the worker's machine

    done = train_and_measure(cell, (held, SEEN), start, terms)
    assert done.error is None and done.cell.root == cell.root and not cell.finished
    files = sorted(path.relative_to(store / "cells/oe").as_posix() for path in store.rglob("*") if path.is_file())
    confidences = [name for name in files if "confidences" in name]
    own = [f"{cell.key}/{name}" for name in ("metrics.jsonl", "net.safetensors", "recipe.toml", "state.pt")]
    assert files == sorted([f"{cell.key}.json", *own, *confidences]) and len(confidences) == 2
    assert f'source = "file://{store}/start/net.safetensors"' in (store / "cells/oe" / own[2]).read_text()
    again = train_and_measure(cell, (Held(), SEEN), start, terms)  # without the images, nothing can be trained again
    assert again.value().weights == done.value().weights


def test_options_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    sets = ("sweep", "--id", "digits", "--outliers", "digits-outliers", "--net", "wrn-10-1")
    assert "--address is for --engine ray" in refused(capsys, *sets, "--address", "auto")
    assert "--gpus must be at least 0" in refused(capsys, *sets, "--engine", "ray", "--gpus", "-1")
    assert "--gpus is for --engine ray" in refused(capsys, "reproduce", "table1", "--gpus", "1")
    assert "which --engine ray writes to; name a folder, or" in refused(capsys, *sets, "--run", "s3://bucket/sweep")
    assert "which --engine ray writes to" in refused(capsys, "reproduce", "table1", "--out", "s3://bucket/paper")
    assert "to a folder, not to a URL such as s3://b" in refused(capsys, "reproduce", "study", "--out", "s3://b")
    assert "Cannot understand the URL nowhere://x" in refused(capsys, *sets, "--engine", "ray", "--run", "nowhere://x")
