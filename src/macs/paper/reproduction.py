"""Running the grid: every training once, with failures noted and results collected for tables and figures."""

import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.data.catalog import catalog
from macs.data.loading import data_root
from macs.experiments.cells import Cell, Result
from macs.experiments.engine import Engine, SerialEngine
from macs.experiments.margins import Choice, Point, chosen_margin, plateaus
from macs.metrics import FprRule
from macs.paper.grid import MACS, Only, TableRow, Training, rows_of, trainings
from macs.paper.setup import Bench, Setup, bench


class Lacking(Exception):
    """Why a number cannot be given: in one word for the table, and in a sentence for the notes below it."""

    def __init__(self, word: Literal["failed", "missing"], why: str) -> None:
        super().__init__(why)
        self.word = word


@dataclass
class Outcome:
    """The result or failure of each training, and the numbers that follow from them."""

    setup: Setup
    seeds: tuple[int, ...]
    only: Only
    results: dict[Training, Result] = field(default_factory=dict)
    failures: dict[Training, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # ID set -> how to get it
    notes: dict[str, list[str]] = field(default_factory=dict)  # ID set -> where its numbers come from

    def result(self, training: Training) -> Result:
        if training.id in self.missing:
            raise Lacking("missing", f"{training.id} was not run: {self.missing[training.id]}")
        if training in self.failures:
            raise Lacking("failed", f"{training.name} failed: {self.failures[training]}")
        return self.results[training]

    def points(self, id: str, net: str) -> list[Point]:
        """The curve over margins; raises Lacking if it is incomplete, since nothing may be chosen from such a curve."""
        return [Point(margin, tuple(self._results(MACS, id, net, margin))) for margin in self.setup.scale.margins]

    def chosen(self, id: str, net: str, on: Choice) -> float:
        return chosen_margin(self.points(id, net), on)

    def row(self, row: TableRow, id: str, net: str) -> tuple[float | None, list[Result]]:
        """The margin of a row and its results, one per seed."""
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
) -> Outcome:
    """Run the trainings that the parts need. If one fails, only the numbers that depend on it are lost."""
    todo = trainings(parts, setup.scale, only, seeds)
    outcome = Outcome(setup, tuple(seeds), only)
    if setup.scale.complete:
        refuse_gaps(setup, todo)
    engine = engine or SerialEngine(setup.root, progress and sys.stderr.isatty())
    unused: Counter[str] = Counter()
    for sets, group in benches(setup, todo, outcome.missing):
        outcome.notes[sets.id] = sets.notes()
        engine.hold(sets.held())
        titles = {training: f"[{todo.index(training) + 1}/{len(todo)}] {training.name}" for training in group}
        by_name = {training.name: training for training in group}
        # Pretrainings first, since the others start from them, then round after round of the released loop.
        waves = [[training for training in group if training.method == "msp"]]
        later = [training for training in group if training.method != "msp"]
        waves += [[t for t in later if t.round == number] for number in sorted({t.round for t in later})]
        for wave in waves:
            cells = _cells(sets, wave, outcome, unused, titles, progress)
            for cell, result, error in engine.run(cells, sets.examination, fpr_rule):
                training = by_name[cell.name]
                if result is not None:
                    outcome.results[training] = result
                elif error is not None:
                    outcome.failures[training] = _reason(error, cell)
                    tell(f"{titles[training]} failed: {outcome.failures[training]}")
    for difference, count in unused.items():
        tell(f"Kept but not used, {count} in {setup.out / 'cells'}: {difference}.")
    if not outcome.results and not outcome.failures:
        raise MacsError(next(iter(outcome.missing.values())))
    return outcome


def _cells(
    sets: Bench,
    group: Sequence[Training],
    outcome: Outcome,
    unused: "Counter[str]",
    titles: Mapping[Training, str],
    progress: bool,
) -> Iterator[Cell]:
    """The cells of trainings, each announced as it is taken; those whose pretraining failed are left out."""
    for training in group:
        before = None if training.method == "msp" else training.before(outcome.setup.scale.margins)
        if before is not None and before in outcome.failures:
            which = "its pretraining" if before.method == "msp" else before.name
            outcome.failures[training] = f"{which} failed: {outcome.failures[before]}"
            continue
        try:
            cell = sets.cell(training)
        except MacsError as error:
            outcome.failures[training] = str(error)
            continue
        assert cell is not None  # the training before it has just been finished
        unused.update(cell.others())
        tell(f"{titles[training]}{' (done before)' if cell.finished else ''}", progress)
        yield cell


def benches(setup: Setup, todo: Sequence[Training], missing: dict[str, str]) -> Iterator[tuple[Bench, list[Training]]]:
    """The images and trainings of one ID set after another, so that memory holds one; fills in what is missing."""
    for id in dict.fromkeys(training.id for training in todo):
        try:
            sets = bench(setup, id)
        except MacsError as error:
            missing[id] = str(error)
            continue
        yield sets, [training for training in todo if training.id == id]


def refuse_gaps(setup: Setup, todo: Sequence[Training]) -> None:
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
    """One line on what went wrong; unless it is the user's mistake, a log beside the cell holds the traceback."""
    if isinstance(error, MacsError):
        return str(error)
    log = cell.folder.path.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]} (see {_short(log)})"


def _short(path: Path) -> str:
    return str(Path(*path.parts[-3:]))
