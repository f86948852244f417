"""Trainings in other processes, forked by a server that has imported torch and macs: that saves seconds each."""

import multiprocessing
import os
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Literal

import torch

import macs
from macs import methods, training
from macs.experiments.cells import Cell, Examination, SerialEngine
from macs.training.recipe import Recipe
from macs.training.sources import Held, Training
from macs.training.spec import TrainingSpec
from tiny import noise, stripes

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["macs.training.loop"])


def start_training(run: Path, method: str, keep: Literal["last", "best"]) -> ForkServerProcess:
    """Begin or resume a short training; once this returns, it has begun."""
    ready = processes.Event()
    child = processes.Process(target=_train, args=(run, method, keep, ready))
    child.start()
    assert ready.wait(60)
    return child


def _train(run: Path, method: str, keep: Literal["last", "best"], ready: Event) -> None:
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=3)
    ready.set()
    macs.finetune(
        net,
        stripes(192, seed=1),
        noise(256, seed=3),
        run=run,
        resume=True,
        progress=False,
        validation=stripes(60, seed=2),
        validation_outliers=noise(60, seed=4),
        method=method,
        recipe=Recipe(epochs=6, batch_in=32, batch_out=32, lr=0.02, keep=keep),
    )


def run_elsewhere(record: Path, folder: Path) -> None:
    """Repeat a recorded training by another process, in another working folder."""
    folder.mkdir()
    child = processes.Process(target=_repeat, args=(record.resolve(), folder))
    child.start()
    child.join(300)
    assert child.exitcode == 0


def _repeat(record: Path, folder: Path) -> None:
    os.chdir(folder)
    training.run(TrainingSpec.from_toml(record), folder / "run", root=folder / "data", progress=False)


def start_cell(folder: Path, told: Path) -> ForkServerProcess:
    """Begin to compute a cell; what it prints goes to `told`."""
    child = processes.Process(target=_compute_cell, args=(folder, told))
    child.start()
    return child


def _compute_cell(folder: Path, told: Path) -> None:
    with told.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    train, outliers = stripes(192, seed=1), noise(256, seed=3)
    recipe = Recipe(epochs=6, batch_in=32, batch_out=32, lr=0.02, precision="float32")
    net = training.starting_net("wrn-10-1", classes=3)
    cell = Cell(folder, "cell", Training(net, train, outliers, methods.build("oe"), recipe).spec)
    seen, held = Examination(stripes(40, seed=5), noise(40, seed=6)), Held.of([train, outliers])
    (done,) = SerialEngine(progress=True).run([cell], seen, held)
    print(done.value().weights, flush=True)
