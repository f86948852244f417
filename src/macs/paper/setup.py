"""The image sets of one ID set at a scale, and the cells of its trainings."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.catalog import catalog
from macs.data.loading import data_root
from macs.experiments.cells import Cell, Examination
from macs.experiments.margins import held_out
from macs.experiments.starting_weights import checkpoint_of
from macs.paper.grid import Training
from macs.paper.scales import PaperScale
from macs.training.recipe import Recipe

if TYPE_CHECKING:
    from macs.training.sources import Held

OWN_OUTLIERS, OWN_VAL_OUTLIERS = "outliers_train.npy", "outliers_val.npy"  # in the data folder


@dataclass(frozen=True)
class Setup:
    """The settings of a reproduction: scale, folders, and where outliers and starting weights come from."""

    scale: PaperScale
    out: Path
    root: Path | None = None
    outliers: str | None = None  # instead of the scale's
    val_outliers: str | None = None
    checkpoint: Path | None = None  # for every network, or a folder of files called ID-NET.pt
    normalisation: str | None = None  # of the images that the checkpoint's network was trained on, if not ours

    def finetuning(self, training: Training) -> Recipe:
        """The recipe of a fine-tuning. In the released loop over margins, the cosine falls and rises in turn.

        Every round draws other images. For ImageNet-32, an epoch of the released code has as many ID images as there
        are outliers.
        """
        recipe = replace(self.scale.finetuning, seed=training.seed + 1000 * training.round)
        if self.scale.released and training.id == "imagenet32":
            recipe = replace(recipe, epoch_size=min(recipe.epoch_size or 300_000, 300_000))
        return replace(recipe, cosine="rising") if training.round % 2 else recipe

    def checkpoint_of(self, id: str, net: str) -> Path | None:
        """The file to start from instead of pretraining, if one was given."""
        return None if self.checkpoint is None else checkpoint_of(self.checkpoint, id, net)

    def budget(self) -> str:
        """The budget of a fine-tuning, in words."""
        recipe = self.scale.finetuning
        size = f"{recipe.epoch_size:,} ID images" if recipe.epoch_size else "all ID images"
        dropout = "the network's own dropout" if recipe.dropout is None else f"dropout {recipe.dropout:g}"
        return (
            f"Fine-tuning: {recipe.epochs} epochs of {size}, {recipe.batch_in} + {recipe.batch_out} per step, learning "
            f"rate {recipe.lr:g}, {dropout}, precision {recipe.precision}."
        )

    def outlier_sets(self) -> tuple[ImageSet, ImageSet, dict[str, str]]:
        """Outliers to train with, others to choose the margin by, and which of the scale's are missing.

        Where a scale need not be complete and its outliers are missing, those in the data folder take their place.
        """
        scale, root = self.scale, data_root(self.root)
        spec, val_spec, missing = self.outliers or scale.outliers, self.val_outliers, {}
        own, own_val = root / OWN_OUTLIERS, root / OWN_VAL_OUTLIERS
        if self.outliers is None and not scale.complete and own.is_file() and not _on_disk(spec, root):
            missing[spec] = f"{own} stands for it; `macs data get {spec}` gets it."
            spec = str(own)
            if val_spec is None and own_val.is_file():
                val_spec = str(own_val)
        return *held_out(spec, scale.validation, root, scale.size, elsewhere=val_spec), missing


@dataclass(frozen=True)
class Bench:
    """The images for one ID set: to train on, to choose by and to test on; and which sets are missing."""

    setup: Setup
    id: str
    train: ImageSet
    outliers: ImageSet
    examination: Examination
    missing: dict[str, str]  # set -> how to get it

    def cell(self, training: Training) -> Cell | None:
        """The cell of a training, or None until the training that it starts from is finished.

        All trainings of an ID set, network and seed start from the same pretraining, directly or in a chain.
        """
        from macs import methods, nets
        from macs.training.sources import spec_of

        if training.method == "msp":
            return self._pretraining(training)
        before = self.cell(training.before(self.setup.scale.margins))
        if before is None or not before.finished:
            return None
        settings: dict[str, str | float] = dict(training.settings)
        if training.margin is not None:
            settings["margin"] = training.margin
        net = nets.load(before.folder.net_file, training.net, len(self.train.classes))
        spec = spec_of(
            net, self.train, self.outliers, methods.build(training.method, settings), self.setup.finetuning(training)
        )
        return Cell(before.root, training.name, spec)

    def _pretraining(self, training: Training) -> Cell:
        """The cell of the pretraining; a checkpoint that was given counts as a pretraining done elsewhere."""
        from macs import methods
        from macs import training as train
        from macs.training.checks import warn_of_normalisation
        from macs.training.sources import spec_of

        recipe = replace(self.setup.scale.pretraining, seed=training.seed)
        checkpoint = self.setup.checkpoint_of(self.id, training.net)
        if checkpoint is not None:
            warn_of_normalisation(self.id, checkpoint, self.setup.normalisation)
        net = train.starting_net(
            training.net,
            len(self.train.classes),
            checkpoint=checkpoint or "",
            dropout=recipe.dropout,
            seed=recipe.seed,
            normalisation=self.setup.normalisation,
        )
        spec = spec_of(net, self.train, None, methods.build("msp"), replace(recipe, batch_out=0))
        return Cell(self.setup.out / "cells", training.name, spec, trained=checkpoint is not None)

    def held(self) -> "Held":
        """The images that cells are trained on."""
        from macs.training.sources import Held

        return Held.of([self.train, self.outliers])

    def notes(self) -> list[str]:
        """The sizes of the sets, with the official ones if they differ, and which sets are missing."""
        test = self.examination.test
        assert test is not None
        near = {f"{name} (near)": images for name, images in self.examination.near.items()}
        sets = {f"{test.whole_name} (ID)": test, **self.examination.ood, **near}
        sizes = ", ".join(f"{name} {len(images):,}{_official(images)}" for name, images in sets.items())
        names = (f"{images.whole_name} ({len(images):,})" for images in (self.outliers, self.examination.val_outliers))
        notes = [f"Test images: {sizes}.", "Outliers: {} to train with, {} to choose the margin by.".format(*names)]
        if self.setup.checkpoint is not None:
            notes.append("The given checkpoint may have been trained on the held-out ID images that choose the margin.")
        return notes + [f"Without {name}: {how}" for name, how in self.missing.items()]


def bench(setup: Setup, id: str) -> Bench:
    """Load the sets; missing training images, missing test images or no OOD set at all is an error."""
    scale, size = setup.scale, setup.scale.size
    train, val = held_out(id, scale.validation, setup.root, size)
    test = load(id, "test", root=setup.root, size=size)
    outliers, val_outliers, missing = setup.outlier_sets()
    unknown = {}
    near = [scale.near[id]] if id in scale.near else []
    for name in (*scale.ood_sets(id).values(), *near):
        try:
            unknown[name] = _limited(load(name, "test", root=setup.root, size=size), scale.limit)
        except MacsError as error:
            if scale.complete:
                raise
            missing[name] = str(error)
    ood = {name: images for name, images in unknown.items() if name not in near}
    if not ood:
        raise MacsError(f"None of the OOD sets for {id} can be loaded: {next(iter(missing.values()))}")
    near_sets = {name: unknown[name] for name in near if name in unknown}
    val, val_outliers, test = (_limited(images, scale.limit) for images in (val, val_outliers, test))
    return Bench(setup, id, train, outliers, Examination(val, val_outliers, test, ood, near_sets), missing)


def _on_disk(name: str, root: Path) -> bool:
    return catalog[name].find(root, "train") is not None


def _limited(images: ImageSet, limit: int) -> ImageSet:
    """At most `limit` images, spread evenly over the set; all of them if the limit is 0."""
    if not 0 < limit < len(images):
        return images
    return images.subset(np.linspace(0, len(images) - 1, limit).astype(np.int64))


def _official(images: ImageSet) -> str:
    """The official size of a test set from the catalogue, where it differs."""
    splits = catalog[images.whole_name].splits if images.whole_name in catalog.available() else {}
    official = splits["test"].images if "test" in splits else len(images)
    return f" of {official:,}" if official != len(images) else ""
