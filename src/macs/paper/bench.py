"""The image sets of one ID set at a scale, and the cells of its trainings."""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.catalog import catalog
from macs.data.loading import data_root
from macs.experiments.cells import Cell, Examination
from macs.experiments.margins import held_out
from macs.paper.grid import Training
from macs.paper.scales import Scale
from macs.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

SUFFIXES = (".pt", ".pth", ".safetensors")
OWN_OUTLIERS, OWN_VAL_OUTLIERS = "outliers_train.npy", "outliers_val.npy"  # in the data folder


@dataclass(frozen=True)
class Setup:
    """Everything that a reproduction is told: scale, folders, and where outliers and starting weights come from."""

    scale: Scale
    out: Path
    root: Path | None = None
    outliers: str | None = None  # instead of the scale's
    val_outliers: str | None = None
    checkpoint: Path | None = None  # for every network, or a folder of files called ID-NET.pt

    def checkpoint_of(self, id: str, net: str) -> Path | None:
        """The file to start from instead of pretraining, if one was given."""
        path = self.checkpoint
        if path is None or path.is_file() or (path / "net.safetensors").is_file():
            return path
        files = (path / f"{id}-{net}{suffix}" for suffix in SUFFIXES)
        return next((file for file in files if file.is_file()), None)

    def outlier_sets(self) -> tuple[ImageSet, ImageSet, dict[str, str]]:
        """Outliers to train with, others to choose the margin by, and which of the scale's are not there.

        A scale that makes do with what there is takes the data folder's own outliers where its own are missing.
        """
        scale, root = self.scale, data_root(self.root)
        spec, val_spec, missing = self.outliers or scale.outliers, self.val_outliers, {}
        own, own_val = root / OWN_OUTLIERS, root / OWN_VAL_OUTLIERS
        if self.outliers is None and not scale.complete and own.is_file() and not _there(spec, root):
            missing[spec] = f"{own} stands for it; `macs data get {spec}` gets it."
            spec = str(own)
            if val_spec is None and own_val.is_file():
                val_spec = str(own_val)
        return *held_out(spec, scale.validation, root, scale.finetuning.size, elsewhere=val_spec), missing


@dataclass(frozen=True)
class Bench:
    """The images of one ID set: to train on, to choose and to test by; and what should be there but is not."""

    setup: Setup
    id: str
    train: ImageSet
    outliers: ImageSet
    examination: Examination
    missing: dict[str, str]  # set -> how to get it

    def cell(self, training: Training) -> Cell:
        """The cell of a training; all of an ID set, network and seed start from the same pretraining."""
        plain = self._pretraining(training)
        if training.method == "msp":
            return plain
        scale = self.setup.scale
        recipe = replace(
            scale.finetuning,
            id=self.id,
            net=training.net,
            outliers=self.outliers.whole_name,
            checkpoint=f"{plain.name}/{plain.key}",
            method=training.method,
            margin=training.margin,
            options={"variant": "unbounded"} if training.unbounded else {},
            seed=training.seed,
        )
        return Cell(plain.root, training.name, recipe, self.train, self.outliers, plain.key, plain.net)

    def _pretraining(self, training: Training) -> Cell:
        recipe = replace(self.setup.scale.pretraining, id=self.id, net=training.net, seed=training.seed, method="msp")
        given = self.setup.checkpoint_of(self.id, training.net)
        if given is not None:
            recipe = replace(recipe, checkpoint=given.name)
        starting = partial(_starting, recipe, given, len(self.train.classes))
        name = replace(training, method="msp", margin=None, unbounded=False).name
        start = "" if given is None else _digest(given)
        return Cell(self.setup.out / "cells", name, recipe, self.train, None, start, starting)

    def run(self, cell: Cell, progress: bool) -> None:
        """Train the cell, or keep the given weights as a pretraining that was done elsewhere."""
        if cell.recipe.method == "msp" and cell.recipe.checkpoint:
            cell.adopt()
        else:
            cell.run(progress)

    def notes(self) -> list[str]:
        """How large the sets are that the numbers come from, beside their official sizes; and which are missing."""
        test = self.examination.test
        assert test is not None
        sets = {f"{test.whole_name} (ID)": test, **self.examination.ood}
        sizes = ", ".join(f"{name} {len(images):,}{_official(images)}" for name, images in sets.items())
        names = (f"{images.whole_name} ({len(images):,})" for images in (self.outliers, self.examination.val_outliers))
        notes = [f"Test images: {sizes}.", "Outliers: {} to train with, {} to choose the margin by.".format(*names)]
        if self.setup.checkpoint is not None:
            notes.append("The given checkpoint may have been trained on the held-out ID images that choose the margin.")
        return notes + [f"Without {name}: {how}" for name, how in self.missing.items()]


def bench(setup: Setup, id: str) -> Bench:
    """Load the sets; without training images, test images or any OOD set there is no bench."""
    scale, size = setup.scale, setup.scale.finetuning.size
    train, val = held_out(id, scale.validation, setup.root, size)
    test = load(id, "test", root=setup.root, size=size)
    outliers, val_outliers, missing = setup.outlier_sets()
    ood = {}
    for name in scale.ood_sets(id).values():
        try:
            ood[name] = _limited(load(name, "test", root=setup.root, size=size), scale.limit)
        except MacsError as error:
            if scale.complete:
                raise
            missing[name] = str(error)
    if not ood:
        raise MacsError(f"None of the OOD sets for {id} is there: {next(iter(missing.values()))}")
    held, others, known = (_limited(images, scale.limit) for images in (val, val_outliers, test))
    return Bench(setup, id, train, outliers, Examination(held, others, known, ood), missing)


def _starting(recipe: Recipe, given: Path | None, classes: int) -> "nn.Module":
    """A pretraining's network before it: the given weights, or random ones that the seed decides."""
    from macs import nets, training

    if given is None:
        return training.starting_net(recipe, classes)
    return nets.load(given, recipe.net, classes=classes, dropout=recipe.dropout)


def _digest(path: Path) -> str:
    file = path / "net.safetensors" if path.is_dir() else path
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12]


def _there(name: str, root: Path) -> bool:
    return catalog[name].find(root, "train") is not None


def _limited(images: ImageSet, limit: int) -> ImageSet:
    """At most so many images, spread over the set; all of them if the limit is 0."""
    if not 0 < limit < len(images):
        return images
    return images.subset(np.linspace(0, len(images) - 1, limit).astype(np.int64))


def _official(images: ImageSet) -> str:
    """What the catalogue says of a test set's size, where the set is smaller."""
    splits = catalog[images.whole_name].splits if images.whole_name in catalog.available() else {}
    official = splits["test"].images if "test" in splits else len(images)
    return f" of {official:,}" if official != len(images) else ""
