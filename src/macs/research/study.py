"""The study: which cells exist and which are missing, how these are computed, and what the cells say.

Choices (settings, score, recommendation) read validation results alone; test results are only reported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.files import claimed
from macs.data import ImageSet, load
from macs.data.loading import data_root
from macs.data.spec import fingerprint
from macs.detector.score_selection import best, mean_ranks
from macs.experiments.cells import Examination, checkpoint_of, for_all, spread
from macs.metrics import OODMetrics
from macs.research import study_plan as plan
from macs.research.seed_statistics import Difference, Estimate, estimate, paired_difference, rank_agreement
from macs.research.study_cells import (
    METRICS,
    VALIDATION,
    CellRecord,
    Machine,
    StudySets,
    cell_for,
    compute,
    loss_code,
    records_in,
)
from macs.research.study_plan import Row, Trial, repeated
from macs.research.study_rule import RankedCandidate, ranked
from macs.scores import get
from macs.training.spec import differences

REFERENCE = "oe"  # the row that all others are compared with
RECOMMENDED = "recommended"  # the name of a row
GOAL = 0.7  # of OE's mean FPR95 with MSP


@dataclass
class Study:
    """The rows, and the cells that exist."""

    rows: tuple[Row, ...]
    records: list[CellRecord]

    @classmethod
    def read(cls, folder: Path, rows: tuple[Row, ...] = plan.EVERY_ROW) -> "Study":
        return cls(rows, records_in(folder))

    def find(self, trial: Trial) -> CellRecord | None:
        """Return the cell of a trial, if it exists and its loss has not changed since."""
        wanted, code = trial.as_dict(), loss_code(trial.method)
        matches = (record for record in self.records if record.trial == wanted and record.code == code)
        return next(matches, None)

    def records_of(self, trial: Trial, seeds: Iterable[int]) -> dict[int, CellRecord]:
        """Return the cells of a trial with other seeds, as far as they exist."""
        found = {each.seed: self.find(each) for each in repeated(trial, list(seeds))}
        return {seed: record for seed, record in found.items() if record is not None}

    def by_own_score(self, row: Row, trials: Iterable[Trial]) -> list[tuple[tuple[float, float], Trial]]:
        """Return those of a row's trials that have a cell, each with its rank by the score of the row's method."""
        score = own_score(row)
        return [(record.rank(score), trial) for trial in trials if (record := self.find(trial)) is not None]

    def candidates(self, row: Row) -> list[Trial]:
        """Return the candidates worth a training: a lower rate only after one that was better than the one before."""
        if row.larger:
            return row.candidates()
        rates = row.rates()
        worth = rates[:1]
        for pair in pairwise(rates):
            worth.append(pair[1])
            results = [rank for rank, _ in self.by_own_score(row, pair)]
            if len(results) < 2 or results[1] >= results[0]:
                break
        return worth + row.candidates()[len(rates) :]

    def chosen(self, row: Row) -> Trial | None:
        """Return the best candidate, or the first as long as one has no cell: a part of a grid decides nothing."""
        candidates = self.candidates(row)
        if row.larger:
            of_row = [each for each in self.ranked(larger=True) if each.trial in candidates]
            return next((each.trial for each in of_row if each.allowed), of_row[0].trial if of_row else None)
        finished = self.by_own_score(row, candidates)
        if len(finished) < len(candidates):
            return candidates[0] if self.find(candidates[0]) is not None else None
        return min(finished, key=itemgetter(0))[1]

    def ranked(self, larger: bool = False) -> list[RankedCandidate]:
        """Return the candidates of one budget by the rule, the best first, each by its cell with the lowest seed."""
        rows = [row for row in self.rows if row.larger == larger and (larger or not (row.once or row.apart))]
        plain = next((self.find(row.candidates()[0]) for row in rows if not row.method), None)
        found: list[tuple[Row, Trial, CellRecord]] = []
        for row in rows:
            for trial in row.candidates():
                cells = [
                    each for each in self.records_of(trial, plan.SEEDS + plan.MORE_SEEDS).values() if each.unknowns
                ]
                if cells and all(trial.as_dict() != other.as_dict() for _, other, _ in found):
                    found.append((row, trial, cells[0]))
        return ranked(found, plain) if plain is not None else []

    def recommended(self) -> RankedCandidate | None:
        """Return the training and the score that the rule chooses; None without the plain classifier's cell."""
        return next((each for each in self.ranked() if each.allowed), None)

    def trials(self) -> Iterator[Trial]:
        yield from self.repeats()
        yield from plan.trials(self.rows, self.chosen, self.candidates)
        yield from self.repeats()

    def repeats(self) -> list[Trial]:
        """Return the trials of the recommended method, which has as many seeds as the main rows."""
        best = self.recommended()
        return [] if best is None or not best.row.method else repeated(best.trial, plan.SEEDS + plan.MORE_SEEDS)

    def missing(self) -> list[Trial]:
        """Return the trials without a cell; if no candidate of a row has one, its seeds repeat the first candidate."""
        planned = plan.trials(self.rows, lambda row: self.chosen(row) or row.candidates()[0], self.candidates)
        distinct = {str(trial.as_dict()): trial for trial in (*planned, *self.repeats())}
        return [trial for trial in distinct.values() if self.find(trial) is None]


def own_score(row: Row) -> str:
    """Return the score that the row's method is meant for."""
    from macs import methods

    return methods.build(row.method, row.settings).score if row.method else "msp"


def sets_from(root: Path | None, checkpoint: Path, groups: Path | None = None) -> dict[str, StudySets]:
    """Return the study's images with the starting classifier of each network that has one, by `Trial.sets`.

    `groups` is the file that tells which outliers look alike; without it, there are none for the larger study.
    """
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
    sets = {name: StudySets(net, train, outliers, examination) for name, net in nets.items()}
    if groups is not None and groups.is_file():
        held_out = np.isin(grouped(outliers, groups), plan.HELD_OUT_GROUPS)
        on = Examination(
            tests.subset(np.arange(plan.VALIDATION)),
            spread(outliers.subset(np.flatnonzero(held_out)), plan.VAL_IMAGES),
            tests.subset(np.arange(plan.VALIDATION, plan.VALIDATION + plan.LARGER_TEST)),
            {name: spread(load(name, "test", root=root), plan.LARGER_OOD) for name in plan.OOD},
        )
        trained_on = outliers.subset(np.flatnonzero(~held_out))
        for name, net in nets.items():
            sets[f"{name}, larger"] = StudySets(net, train, trained_on, on)
    return sets


def grouped(outliers: ImageSet, groups: Path) -> NDArray[np.uint8]:
    """Return the group of look-alikes of every outlier, which a file keeps for the images with this fingerprint."""
    with np.load(groups) as saved:
        of: NDArray[np.uint8] = saved["groups"]
        images = str(saved["fingerprint"])
    if images != fingerprint(outliers):
        raise MacsError(f"{groups} groups other images than {outliers.name}; take the outliers of the study.")
    return of


def checkpoints(path: Path) -> dict[str, Path]:
    """Return the starting classifiers by network: a file has that of the first, a folder may have one for each."""
    if for_all(path):
        return {plan.NET: path}
    files = {net: checkpoint_of(path, plan.ID, net) for net in (plan.NET, plan.SECOND_NET)}
    found = {net: file for net, file in files.items() if file is not None}
    if not found:
        raise MacsError(f"There is no file called {plan.ID}-{plan.NET}.pt in {path}; name the classifier's own file.")
    return found


def run(
    study: Study, sets_of: Mapping[str, StudySets], folder: Path, runs: Path, limit: int = 0
) -> Sequence[CellRecord]:
    """Compute missing cells in the order of work, at most `limit` of them (0: all), and add them to the study. Those of
    networks without a classifier are left out. Several processes share out the work: each computes what no other does.

    Cells of other images or other starting weights are an error: one table must not mix them.
    """
    left_out = sorted({trial.net for trial in study.missing() if trial.sets not in sets_of})
    if left_out:
        files = ", ".join(f"{plan.ID}-{net}.pt" for net in left_out)
        tell(f"Some missing cells are left out: they need a folder as --checkpoint, with {files} in it.")
    made: list[CellRecord] = []
    for trial in study.trials():
        if limit and len(made) == limit:
            break
        sets = sets_of.get(trial.sets)
        if sets is None:
            continue
        cell, existing = cell_for(trial, runs, sets), study.find(trial)
        if existing is None:
            with claimed(runs / f".{cell_for(trial.whole, runs, sets).key}.lock") as ours:
                if not ours:
                    continue
                study.records[:] = records_in(folder)  # others may have computed more
                if study.find(trial) is not None:
                    continue
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


@dataclass(frozen=True)
class RowResult:
    """The results of one row, from its cells."""

    row: Row
    trial: Trial  # the chosen candidate
    records: Mapping[int, CellRecord]  # by seed
    own: str  # the score of its method
    tried: int = 1  # number of its candidates that have a cell
    worth_trying: int = 1  # number of its candidates

    def over_seeds(self, metric: str, score: str, where: str | Sequence[str] = "") -> dict[int, float]:
        """Return a metric for each seed, on one set, or as the mean over several (by default over all test sets)."""
        sets = [where] if isinstance(where, str) and where else where or plan.OOD
        return {seed: record.mean(metric, score, sets) for seed, record in self.records.items()}

    def estimate(self, metric: str, score: str, where: str | Sequence[str] = "") -> Estimate:
        return estimate(list(self.over_seeds(metric, score, where).values()))

    @property
    def accuracy(self) -> Estimate:
        return estimate([record.accuracy for record in self.records.values()])

    @cached_property
    def best_score(self) -> str:
        """The score with the lowest validation FPR95; ties are broken by the highest validation AUROC."""

        def rank(score: str) -> tuple[float, float]:
            fpr95, auroc = (self.estimate(metric, score, VALIDATION).mean for metric in ("fpr95", "auroc"))
            return fpr95, -auroc

        return min(plan.SCORES, key=rank)

    @cached_property
    def auto_score(self) -> str | None:
        """The score that `--score auto` chooses by its own rule, on the validation outliers and on unknown images that
        macs makes, from the means over those seeds whose cells hold these; None if none does."""
        records = [record for record in self.records.values() if record.unknowns]
        if not records:
            return None

        def averaged(score: str, kind: str) -> OODMetrics:
            sets = [{**record.unknowns[score], VALIDATION: record.scores[score][VALIDATION]} for record in records]
            return OODMetrics(**dict(zip(METRICS, np.mean([of[kind] for of in sets], axis=0), strict=True)))

        kinds = (VALIDATION, *records[0].unknowns[plan.SCORES[0]])
        ranks = mean_ranks({score: {kind: averaged(score, kind) for kind in kinds} for score in plan.SCORES})
        return best(ranks, {score: (get(score).reads != "logits", records[0].stored[score]) for score in plan.SCORES})

    @property
    def chosen_score(self) -> str:
        """The score to take, as far as validation tells."""
        return self.auto_score or self.best_score

    def cost(self, what: str) -> float:
        return float(np.mean([record.cost[what] for record in self.records.values()]))

    def relative_cost(self, unit: Mapping[Machine, float]) -> float | None:
        """CPU seconds of a training as a multiple of the `unit` of its machine; None if no cell's machine has one."""
        ratios = [
            record.cost["cpu_seconds"] / unit[record.made_on]
            for record in self.records.values()
            if record.made_on in unit
        ]
        return float(np.mean(ratios)) if ratios else None


@dataclass(frozen=True)
class StudyResults:
    """All rows that have at least one cell."""

    rows: Mapping[str, RowResult]
    missing: int  # number of planned cells that are missing
    others: Mapping[str, RowResult] = field(default_factory=dict)  # rows of other tables: one rate, budgets, protocols
    best: str = ""  # the name of the row that is recommended
    best_score: str = ""  # and the score that the rule chose with it
    ranked: Sequence[RankedCandidate] = ()  # all candidates by the rule
    screened: Sequence[RankedCandidate] = ()  # those of the larger study
    oe_seconds: Mapping[Machine, float] = field(default_factory=dict)  # CPU seconds of OE with the table's budget

    @classmethod
    def of(cls, study: Study) -> "StudyResults":
        rows: dict[str, RowResult] = {}
        others: dict[str, RowResult] = {}
        for row in study.rows:
            trial = study.chosen(row)
            other = row.once or row.apart
            again = any(trial == earlier.trial for earlier in rows.values()) and not other
            candidates = study.candidates(row)
            tried = sum(study.find(candidate) is not None for candidate in candidates)
            if again and tried < len(candidates):
                continue  # so far it is another row's training, and nothing was chosen
            if trial is not None:
                # The seeds of other rows with the same training count, too.
                records = study.records_of(trial, row.seeds() if other else plan.SEEDS + plan.MORE_SEEDS)
                (others if other else rows)[row.name] = RowResult(
                    row, trial, records, own_score(row), tried, len(candidates)
                )
        best = study.recommended()
        name = "" if best is None else _recommended(study, rows, best.row, best.trial)
        score, seconds = "" if best is None else best.score, _oe_seconds(study, rows.get(REFERENCE))
        orders = study.ranked(), study.ranked(larger=True)
        return cls(rows, len(study.missing()), others, name, score, *orders, seconds)

    def difference(
        self, name: str, metric: str, score: str, reference_score: str, where: str = ""
    ) -> Difference | None:
        """Return a row's metric minus OE's, over the seeds that both have; None for OE itself with the same score."""
        reference, found = self.rows.get(REFERENCE), self.rows[name]
        if reference is None or not found.row.method or (name == REFERENCE and score == reference_score):
            return None
        return paired_difference(
            found.over_seeds(metric, score, where), reference.over_seeds(metric, reference_score, where)
        )

    def agreement(self) -> dict[tuple[str, str], float]:
        """Return how much two plan.OOD sets agree on the order of the rows, each with its own score, by FPR95."""
        rows = self.rows.values()
        return rank_agreement({name: [row.estimate("fpr95", row.own, name).mean for row in rows] for name in plan.OOD})

    def recommended(self) -> tuple[RowResult, str] | None:
        """Return the row that is recommended, and the score to take."""
        found = self.rows.get(self.best)
        return None if found is None else (found, self.best_score)


def _oe_seconds(study: Study, reference: RowResult | None) -> dict[Machine, float]:
    """Means over the cells of OE's row; on machines that made none of these, over its other rates and weights."""

    def budget(trial: Mapping[str, Any]) -> dict[str, Any]:
        recipe = {key: value for key, value in trial["recipe"].items() if key not in ("lr", "seed")}
        return {**trial, "settings": {}, "recipe": recipe}

    def means(records: Iterable[CellRecord]) -> dict[Machine, float]:
        seconds: dict[Machine, list[float]] = {}
        for record in records:
            seconds.setdefault(record.made_on, []).append(record.cost["cpu_seconds"])
        return {machine: float(np.mean(found)) for machine, found in seconds.items()}

    same_budget = budget(Trial(REFERENCE).as_dict())
    others = [record for record in study.records if budget(record.trial) == same_budget]
    return means(others) | means(reference.records.values() if reference else ())


def _recommended(study: Study, rows: dict[str, RowResult], row: Row, trial: Trial) -> str:
    """Return the name of the recommended row, which is a new one if its settings are not those chosen for its row."""
    if rows[row.name].trial == trial:
        return row.name
    title = f"recommended: {row.title}"
    records = study.records_of(trial, [each.seed for each in study.repeats()])
    rows[RECOMMENDED] = RowResult(replace(row, name=RECOMMENDED, title=title), trial, records, own_score(row))
    return RECOMMENDED
