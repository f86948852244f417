"""Running the paper's grid: the images of each ID set, the cell of each training, and the results of all of them."""

import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.catalog import catalog
from macs.data.loading import data_root
from macs.experiments.cells import Cell, Engine, Examination, Result, SerialEngine, checkpoint_of, spread
from macs.experiments.margins import ChosenOn, Point, chosen_margin, held_out, plateaus
from macs.metrics import FprRule
from macs.research.paper_grid import MACS, Only, PaperScale, PaperTraining, TableRow, rows_of, trainings
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

    def finetuning(self, training: PaperTraining) -> Recipe:
        """Return the recipe of a fine-tuning. In the released loop over margins, the cosine falls and rises in turn.

        Every round draws other images. For ImageNet-32, an epoch of the released code has as many ID images as there
        are outliers.
        """
        recipe = replace(self.scale.finetuning, seed=training.seed + 1000 * training.round)
        if self.scale.released and training.id == "imagenet32":
            recipe = replace(recipe, epoch_size=min(recipe.epoch_size or 300_000, 300_000))
        return replace(recipe, cosine="rising") if training.round % 2 else recipe

    def checkpoint_of(self, id: str, net: str) -> Path | None:
        """Return the file to start from instead of pretraining, if one was given."""
        return None if self.checkpoint is None else checkpoint_of(self.checkpoint, id, net)

    def as_printed(self, id: str) -> bool:
        """Return whether budget and outliers are the paper's. An epoch of ImageNet-32 is so only as released."""
        own_outliers = self.outliers not in (None, self.scale.outliers)
        return self.scale.as_printed and not own_outliers and (self.scale.released or id != "imagenet32")

    def budget(self) -> str:
        """Return the budget of a fine-tuning, in words."""
        recipe = self.scale.finetuning
        size = f"{recipe.epoch_size:,} ID images" if recipe.epoch_size else "all ID images"
        dropout = "the network's own dropout" if recipe.dropout is None else f"dropout {recipe.dropout:g}"
        epochs = "one epoch" if recipe.epochs == 1 else f"{recipe.epochs} epochs"
        return (
            f"Fine-tuning: {epochs} of {size}, {recipe.batch_in} + {recipe.batch_out} per step, learning rate "
            f"{recipe.lr:g}, {dropout}, precision {recipe.precision}."
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

    def cell(self, training: PaperTraining) -> Cell | None:
        """Return the cell of a training, or None until the training that it starts from is finished.

        All trainings of an ID set, network and seed start from the same pretraining, directly or in a chain.
        """
        from macs import methods, nets
        from macs.training.sources import Training

        if training.method == "msp":
            return self._pretraining(training)
        before = self.cell(training.before(self.setup.scale.margins))
        if before is None or not before.finished:
            return None
        settings: dict[str, str | float] = dict(training.settings)
        if training.margin is not None:
            settings["margin"] = training.margin
        net = nets.load(before.folder.net_file, training.net, len(self.train.classes))
        method, recipe = methods.build(training.method, settings), self.setup.finetuning(training)
        return Cell(before.root, training.name, Training(net, self.train, self.outliers, method, recipe).spec)

    def _pretraining(self, training: PaperTraining) -> Cell:
        """Return the cell of the pretraining; a checkpoint that was given counts as a pretraining done elsewhere."""
        from macs import methods
        from macs import training as train
        from macs.training.checks import warn_of_normalisation
        from macs.training.sources import Training

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
        spec = Training(net, self.train, None, methods.build("msp"), recipe).spec
        return Cell(self.setup.out / "cells", training.name, spec, trained=checkpoint is not None)

    def held(self) -> "Held":
        """Return the images that cells are trained on."""
        from macs.training.sources import Held

        return Held.of([self.train, self.outliers])

    def notes(self) -> list[str]:
        """Return the sizes of the sets, with the official ones if they differ, and which sets are missing."""
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
            unknown[name] = spread(load(name, "test", root=setup.root, size=size), scale.limit)
        except MacsError as error:
            if scale.complete:
                raise
            missing[name] = str(error)
    ood = {name: images for name, images in unknown.items() if name not in near}
    if not ood:
        raise MacsError(f"None of the OOD sets for {id} can be loaded: {next(iter(missing.values()))}")
    near_sets = {name: unknown[name] for name in near if name in unknown}
    val, val_outliers, test = (spread(images, scale.limit) for images in (val, val_outliers, test))
    return Bench(setup, id, train, outliers, Examination(val, val_outliers, test, ood, near_sets), missing)


def _on_disk(name: str, root: Path) -> bool:
    return catalog[name].find(root, "train") is not None


def _official(images: ImageSet) -> str:
    """Return the official size of a test set from the catalogue, where it differs."""
    splits = catalog[images.whole_name].splits if images.whole_name in catalog.available() else {}
    official = splits["test"].images if "test" in splits else len(images)
    return f" of {official:,}" if official != len(images) else ""


class Lacking(Exception):
    """Why a number cannot be given: in one word for the table, and in a sentence for the notes below it."""

    def __init__(self, word: Literal["failed", "missing"], why: str) -> None:
        super().__init__(why)
        self.word = word


@dataclass
class Reproduction:
    """The result or failure of each training, and the numbers that follow from them."""

    setup: Setup
    seeds: tuple[int, ...]
    only: Only
    results: dict[PaperTraining, Result] = field(default_factory=dict)
    failures: dict[PaperTraining, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # ID set -> how to get it
    notes: dict[str, list[str]] = field(default_factory=dict)  # ID set -> where its numbers come from

    def result(self, training: PaperTraining) -> Result:
        if training.id in self.missing:
            raise Lacking("missing", f"{training.id} was not run: {self.missing[training.id]}")
        if training in self.failures:
            raise Lacking("failed", f"{training.name} failed: {self.failures[training]}")
        return self.results[training]

    def points(self, id: str, net: str) -> list[Point]:
        """Return the curve over margins; raise if it is incomplete, since nothing may be chosen from such a curve."""
        return [Point(margin, tuple(self._results(MACS, id, net, margin))) for margin in self.setup.scale.margins]

    def chosen(self, id: str, net: str, on: ChosenOn) -> float:
        return chosen_margin(self.points(id, net), on)

    def row(self, row: TableRow, id: str, net: str) -> tuple[float | None, list[Result]]:
        """Return the margin of a row and its results, one per seed."""
        margin = self.chosen(id, net, row.margin) if isinstance(row.margin, str) else row.margin
        return margin, self._results(row, id, net, margin)

    def rows(self, part: str) -> tuple[TableRow, ...]:
        return rows_of(part, self.setup.scale, self.only)

    def _results(self, row: TableRow, id: str, net: str, margin: float | None) -> list[Result]:
        return [self.result(row.training(id, net, margin, seed, self.setup.scale)) for seed in self.seeds]

    def plateaus(self, id: str, net: str) -> list[str]:
        return [f"{id} on {net}: {sentence}" for sentence in plateaus(self.points(id, net), self.seeds)]


def reproduce(
    setup: Setup,
    parts: Sequence[str],
    only: Only,
    seeds: Sequence[int] = (0,),
    fpr_rule: FprRule = "first",
    progress: bool = True,
    engine: Engine | None = None,
) -> Reproduction:
    """Run the trainings that the parts need. If one fails, only the numbers that depend on it are lost."""
    todo = trainings(parts, setup.scale, only, seeds)
    done = Reproduction(setup, tuple(seeds), only)
    if setup.scale.complete:
        refuse_gaps(setup, todo)
    engine = engine or SerialEngine(setup.root, progress and sys.stderr.isatty())
    unused: Counter[str] = Counter()
    for sets, group in benches(setup, todo, done.missing):
        done.notes[sets.id] = sets.notes()
        held = sets.held()
        titles = {training: f"[{todo.index(training) + 1}/{len(todo)}] {training.name}" for training in group}
        by_name = {training.name: training for training in group}
        # Pretrainings first, since the others start from them, then round after round of the released loop.
        waves = [[training for training in group if training.method == "msp"]]
        later = [training for training in group if training.method != "msp"]
        waves += [[t for t in later if t.round == number] for number in sorted({t.round for t in later})]
        for wave in waves:
            cells = _cells(sets, wave, done, unused, titles, progress)
            for cell, result, error in engine.run(cells, sets.examination, held, fpr_rule):
                training = by_name[cell.name]
                if result is not None:
                    done.results[training] = result
                elif error is not None:
                    done.failures[training] = _reason(error, cell)
                    tell(f"{titles[training]} failed: {done.failures[training]}")
    for difference, count in unused.items():
        tell(f"Kept but not used, {count} in {setup.out / 'cells'}: {difference}.")
    if not done.results and not done.failures:
        raise MacsError(next(iter(done.missing.values())))
    return done


def _cells(
    sets: Bench,
    group: Sequence[PaperTraining],
    done: Reproduction,
    unused: "Counter[str]",
    titles: Mapping[PaperTraining, str],
    progress: bool,
) -> Iterator[Cell]:
    """Yield the cells of trainings, each announced as it is taken; those whose pretraining failed are left out."""
    for training in group:
        before = None if training.method == "msp" else training.before(done.setup.scale.margins)
        if before is not None and before in done.failures:
            which = "its pretraining" if before.method == "msp" else before.name
            done.failures[training] = f"{which} failed: {done.failures[before]}"
            continue
        try:
            cell = sets.cell(training)
        except MacsError as error:
            done.failures[training] = str(error)
            continue
        assert cell is not None  # the training before it has just been finished
        unused.update(cell.others())
        tell(f"{titles[training]}{' (done before)' if cell.finished else ''}", progress)
        yield cell


def benches(
    setup: Setup, todo: Sequence[PaperTraining], missing: dict[str, str]
) -> Iterator[tuple[Bench, list[PaperTraining]]]:
    """Yield the images and trainings of one ID set after another, so that memory holds one; fill in `missing`."""
    for id in dict.fromkeys(training.id for training in todo):
        try:
            sets = bench(setup, id)
        except MacsError as error:
            missing[id] = str(error)
            continue
        yield sets, [training for training in todo if training.id == id]


def refuse_gaps(setup: Setup, todo: Sequence[PaperTraining]) -> None:
    """Say at the start, and not after days, which sets are not on disk."""
    scale, root = setup.scale, data_root(setup.root)
    ids = dict.fromkeys(training.id for training in todo)
    needed = [(id, split) for id in ids for split in ("train", "test")]
    needed += [
        (setup.outliers or scale.outliers, "train"),
        *((name, "test") for id in ids for name in scale.ood_sets(id).values()),
    ]
    known = [(name, split) for name, split in dict.fromkeys(needed) if name in catalog.available()]
    lacking = [f"{name} ({split})" for name, split in known if catalog[name].find(root, split) is None]
    if lacking:
        raise MacsError(
            f"The scale {scale.name} needs {', '.join(lacking)}, not in {root}: `macs data list` says more; "
            "get them, or run --scale lab with the data that is on disk."
        )


def _reason(error: Exception, cell: Cell) -> str:
    """Say in one line what went wrong; unless it is the user's mistake, log the traceback beside the cell."""
    if isinstance(error, MacsError):
        return str(error)
    log = cell.folder.path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]} (see {_short(log)})"


def _short(path: Path) -> str:
    return str(Path(*path.parts[-3:]))
