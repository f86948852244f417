"""Running the study: which cells exist, which are missing, and computing the missing ones."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

import numpy as np

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.loading import data_root
from macs.experiments.cells import Examination
from macs.experiments.starting_weights import checkpoint_of, for_all
from macs.study import plan
from macs.study.cells import VALIDATION, Record, Sets, cell_for, compute, records_in
from macs.study.code import loss_code
from macs.study.plan import COSTS, ELSEWHERE, EQUAL, LONGER, MORE_SEEDS, PROTOCOLS, ROWS, SEEDS, Row, Trial, repeated
from macs.training.spec import differences

REFERENCE = "oe"  # the row that all others are compared with


@dataclass
class Study:
    """The rows, and the cells that exist."""

    rows: tuple[Row, ...]
    records: list[Record]

    @classmethod
    def read(
        cls, folder: Path, rows: tuple[Row, ...] = ROWS + EQUAL + COSTS + LONGER + PROTOCOLS + ELSEWHERE
    ) -> "Study":
        return cls(rows, records_in(folder))

    def find(self, trial: Trial) -> Record | None:
        """The cell of a trial, if it exists and its loss has not changed since."""
        wanted, code = trial.as_dict(), loss_code(trial.method)
        matches = (record for record in self.records if record.trial == wanted and record.code == code)
        return next(matches, None)

    def records_of(self, trial: Trial, seeds: Iterable[int]) -> dict[int, Record]:
        """The cells of a trial with other seeds, as far as they exist."""
        found = {each.seed: self.find(each) for each in repeated(trial, list(seeds))}
        return {seed: record for seed, record in found.items() if record is not None}

    def ranked(self, row: Row, trials: Iterable[Trial]) -> list[tuple[tuple[float, float], Trial]]:
        """Those of a row's trials that have a cell, each with its rank by the score of the row's method."""
        score = own_score(row)
        return [(record.rank(score), trial) for trial in trials if (record := self.find(trial)) is not None]

    def candidates(self, row: Row) -> list[Trial]:
        """The candidates that are worth a training: a lower rate only after one that was better than the one before."""
        rates = row.rates()
        worth = rates[:1]
        for pair in pairwise(rates):
            worth.append(pair[1])
            results = [rank for rank, _ in self.ranked(row, pair)]
            if len(results) < 2 or results[1] >= results[0]:
                break
        return worth + row.candidates()[len(rates) :]

    def chosen(self, row: Row) -> Trial | None:
        """The best candidate, or the first as long as one has no cell: a part of a grid decides nothing."""
        candidates = self.candidates(row)
        finished = self.ranked(row, candidates)
        if len(finished) < len(candidates):
            return candidates[0] if self.find(candidates[0]) is not None else None
        return min(finished, key=itemgetter(0))[1]

    def recommended(self) -> tuple[Row, Trial] | None:
        """Of all rows' candidates that are as accurate on validation images as OE's, up to one standard error of so few
        images, the one with the lowest FPR95 on validation outliers, by whichever score; ties are broken by AUROC.

        Like every choice, it is made with seed 0; the other seeds say how good it was. None until all grids are
        computed.
        """
        pairs = [(row, trial) for row in self.rows if not (row.once or row.apart) for trial in self.candidates(row)]
        found = [(row, trial, self.find(trial)) for row, trial in pairs]
        cells = [(row, trial, record) for row, trial, record in found if record is not None]
        reference = next((self.chosen(row) for row in self.rows if row.name == REFERENCE), None)
        oe = None if reference is None else self.find(reference)
        if oe is None or len(cells) < len(pairs):
            return None
        share = oe.validation_accuracy
        least = share - math.sqrt(share * (1 - share) / plan.VAL_IMAGES)
        accurate = [each for each in cells if each[2].validation_accuracy >= least]
        row, trial, _ = min(accurate, key=lambda each: min(each[2].rank(score) for score in plan.SCORES))
        return row, trial

    def trials(self) -> Iterator[Trial]:
        yield from plan.trials(self.rows, self.chosen, self.candidates)
        yield from self.repeats()

    def repeats(self) -> list[Trial]:
        """The trials of the recommended method, which has as many seeds as the main rows."""
        best = self.recommended()
        return [] if best is None or not best[0].method else repeated(best[1], SEEDS + MORE_SEEDS)

    def missing(self) -> list[Trial]:
        """The trials without a cell; if no candidate of a row has one, its seeds repeat the first candidate."""
        planned = plan.trials(self.rows, lambda row: self.chosen(row) or row.candidates()[0], self.candidates)
        distinct = {str(trial.as_dict()): trial for trial in (*planned, *self.repeats())}
        return [trial for trial in distinct.values() if self.find(trial) is None]


def own_score(row: Row) -> str:
    """The score that the row's method is meant for."""
    from macs import methods

    return methods.build(row.method, row.settings).score if row.method else "msp"


def sets_from(root: Path | None, checkpoint: Path) -> dict[str, Sets]:
    """The study's images with the starting classifier of each network that has one."""
    from macs import training

    root = data_root(root)
    train, tests = load(plan.ID, "train", root=root), load(plan.ID, "test", root=root)
    val = tests.subset(np.arange(plan.VAL_IMAGES))
    test = tests.subset(np.arange(plan.VALIDATION, plan.VALIDATION + plan.TEST_IMAGES))
    outliers, val_outliers = (load(str(root / name), "train") for name in (plan.OUTLIERS, plan.VAL_OUTLIERS))
    ood = {name: spread(load(name, "test", root=root), plan.OOD_IMAGES) for name in plan.OOD}
    examination = Examination(val, spread(val_outliers, plan.VAL_IMAGES), test, ood)
    nets = {
        name: training.starting_net(name, len(train.classes), checkpoint=file, dropout=0.0)
        for name, file in checkpoints(checkpoint).items()
    }
    return {name: Sets(net, train, outliers, examination) for name, net in nets.items()}


def checkpoints(path: Path) -> dict[str, Path]:
    """The starting classifiers by network: a file holds that of the first one, a folder may have one for each."""
    if for_all(path):
        return {plan.NET: path}
    files = {net: checkpoint_of(path, plan.ID, net) for net in (plan.NET, plan.SECOND_NET)}
    found = {net: file for net, file in files.items() if file is not None}
    if not found:
        raise MacsError(f"There is no file called {plan.ID}-{plan.NET}.pt in {path}; name the classifier's own file.")
    return found


def spread(images: ImageSet, count: int) -> ImageSet:
    """At most `count` images, spread evenly over the set."""
    if count >= len(images):
        return images
    return images.subset(np.linspace(0, len(images) - 1, count).astype(np.int64))


def run(study: Study, sets_of: Mapping[str, Sets], folder: Path, runs: Path, limit: int = 0) -> Sequence[Record]:
    """Compute missing cells in the order of work, at most `limit` of them (0: all), and add them to the study. Those of
    networks without a classifier are left out.

    Cells of other images or other starting weights are an error: one table must not mix them.
    """
    left_out = sorted({trial.net for trial in study.missing()} - sets_of.keys())
    if left_out:
        files = ", ".join(f"{plan.ID}-{net}.pt" for net in left_out)
        tell(f"Some missing cells are left out: they need a folder as --checkpoint, with {files} in it.")
    made: list[Record] = []
    for trial in study.trials():
        if limit and len(made) == limit:
            break
        sets = sets_of.get(trial.net)
        if sets is None:
            continue
        cell, existing = cell_for(trial, runs, sets), study.find(trial)
        if existing is None:
            tell(f"{trial.name}, {trial.recipe.options}, lr {trial.recipe.lr:g}: cell {cell.key}")
            record = compute(cell, trial, sets, folder)
            tell(f"  validation FPR95 {record.value('fpr95', 'msp', VALIDATION):.3f}, {record.cost}")
            study.records.append(record)
            made.append(record)
        elif existing.key != cell.key:
            other = "; ".join(differences(dict(existing.depends), cell.depends))
            file = folder / f"{existing.key}.json"
            raise MacsError(f"{file} is not a cell of these images ({other}); name another --cells.")
    return made
