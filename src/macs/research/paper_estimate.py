"""How long a grid takes: the images of each training, divided by the speed of finished trainings or a measured speed.

Training runs images forwards and backwards; scoring runs them forwards only, which is about three times as fast.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from macs.core.console import tell
from macs.core.errors import MacsWarning
from macs.data import ImageSet
from macs.data.catalog import catalog
from macs.research.paper_grid import Only, PaperTraining, trainings
from macs.research.paper_runs import Bench, Setup, benches
from macs.research.publication import ResultTable, plain
from macs.training.recipe import Recipe
from macs.training.training_batches import steps_per_epoch

SLOWER = {"divoe": 1.8}  # five more passes of half the outliers; other methods cost nearly what OE costs
SCORING = 3.0  # images scored in the time that training takes for one
MEASURED_ON = 32  # ID images, and as many outliers, per step when a speed is measured


@dataclass(frozen=True)
class PlannedTraining:
    """One training of the plan."""

    training: PaperTraining
    state: str  # "done", "to do" or "data missing"
    images: float  # images scored count less, by the factor SCORING
    seconds: float


@dataclass(frozen=True)
class TrainingPlan:
    lines: list[PlannedTraining]

    @property
    def seconds(self) -> float:
        return sum(line.seconds for line in self.lines if line.state != "done")

    def as_dict(self) -> dict[str, object]:
        cells = [
            {"name": line.training.name, "state": line.state, "images": round(line.images), "seconds": line.seconds}
            for line in self.lines
        ]
        return {"seconds": self.seconds, "cells": cells}

    def __rich__(self) -> ResultTable:
        title = f"{len(self.lines)} trainings; about {duration(self.seconds)} to go on this machine"
        rows = [[each.training.name, each.state, f"{each.images:,.0f}", duration(each.seconds)] for each in self.lines]
        return ResultTable(title, ("training", "state", "images", "time"), {"": plain(rows)}, align="r")


def plan(setup: Setup, parts: Sequence[str], only: Only, seeds: Sequence[int], progress: bool = True) -> TrainingPlan:
    """Return what is left to do and how long it takes; sets that are not on disk count with their official sizes."""
    todo = trainings(parts, setup.scale, only, seeds)
    missing: dict[str, str] = {}
    done: set[PaperTraining] = set()
    sizes: dict[str, tuple[int, int]] = {}
    rates: dict[tuple[str, str], float] = {}  # images per second of a network and method, or of the network alone
    for sets, group in benches(setup, todo, missing):
        sizes[sets.id] = len(sets.train), _scored(sets)
        for training in group:
            cell = sets.cell(training)
            if cell is not None and cell.finished:
                done.add(training)
                for epoch in cell.epochs():
                    rates[training.net, training.method] = epoch.images_per_second
    lines = []
    for training in todo:
        train, scored = sizes.get(training.id) or _official(setup, training.id)
        recipe = setup.scale.pretraining if training.method == "msp" else setup.finetuning(training)
        trained_already = training.method == "msp" and setup.checkpoint_of(training.id, training.net) is not None
        images = (0 if trained_already else _trained(recipe, train)) + scored / SCORING
        state = "data missing" if training.id in missing else "done" if training in done else "to do"
        key = (training.net, training.method)
        if key not in rates and state != "done":
            if (training.net, "") not in rates:
                tell(f"Measuring how fast {training.net} is trained on this machine ...", progress)
                rates[training.net, ""] = speed(training.net, setup.scale.finetuning, setup.scale.size)
            rates[key] = rates[training.net, ""] / SLOWER.get(training.method, 1)
        skipped = state == "data missing" and not setup.scale.complete
        lines.append(
            PlannedTraining(training, state, images, images / rates[key] if key in rates and not skipped else 0.0)
        )
    return TrainingPlan(lines)


def speed(net: str, recipe: Recipe, size: int) -> float:
    """Return a network's images per second in training, measured by a few steps on black images and white outliers."""
    from macs import training

    shape = (MEASURED_ON, size, size, 3)
    black = ImageSet.from_array(np.zeros(shape, np.uint8), np.arange(MEASURED_ON) % 10)
    short = replace(recipe, epochs=2, batch_in=MEASURED_ON, batch_out=MEASURED_ON, lr=0.0)
    white = ImageSet.from_array(np.full(shape, 255, np.uint8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MacsWarning)  # nothing is meant to be learned here
        start = training.starting_net(net, 10, dropout=short.dropout)
        history = training.finetune(start, black, white, method="oe", recipe=short, progress=False)
    return history[-1].images_per_second  # the first epoch also warms up


def duration(seconds: float) -> str:
    """Return a duration in words, only as precise as an estimate is."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _trained(recipe: Recipe, train: int) -> int:
    """Return the number of images that a training passes through the network."""
    steps = steps_per_epoch(train, recipe.batch_in, recipe.epoch_size)
    return recipe.epochs * steps * (recipe.batch_in + recipe.batch_out)


def _scored(sets: Bench) -> int:
    on = sets.examination
    assert on.test is not None
    return len(on.val) + len(on.val_outliers) + len(on.test) + sum(map(len, on.ood.values()))


def _official(setup: Setup, id: str) -> tuple[int, int]:
    """Return the numbers of training and scored images by the catalogue's official sizes."""
    scale = setup.scale
    tests = [catalog[name].splits["test"].images for name in (id, *scale.ood_sets(id).values())]
    scored = sum(min(count, scale.limit or count) for count in tests) + 2 * scale.validation
    return catalog[id].splits["train"].images - scale.validation, scored
