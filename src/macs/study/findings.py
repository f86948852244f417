"""From cells to findings: for each row the chosen settings, the metrics over seeds, and the differences from OE.

Choices (settings, score, recommendation) read validation results alone; test results are only reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from macs.detector.choosing import best, mean_ranks
from macs.experiments.statistics import Difference, Estimate, estimate, paired_difference, rank_agreement
from macs.metrics import OODMetrics
from macs.scores import get
from macs.study.cells import METRICS, VALIDATION, Machine, Record
from macs.study.plan import MORE_SEEDS, OOD, SCORES, SEEDS, Row, Trial
from macs.study.running import REFERENCE, Study, own_score

RECOMMENDED = "recommended"  # the name of a row
GOAL = 0.7  # of OE's mean FPR95 with MSP


@dataclass(frozen=True)
class RowResult:
    """The results of one row, from its cells."""

    row: Row
    trial: Trial  # the chosen candidate
    records: Mapping[int, Record]  # by seed
    own: str  # the score of its method
    tried: int = 1  # number of its candidates that have a cell
    worth_trying: int = 1  # number of its candidates

    def over_seeds(self, metric: str, score: str, where: str = "") -> dict[int, float]:
        """A metric for each seed, on one set or (without one) as the mean over the OOD test sets."""
        return {
            seed: record.value(metric, score, where) if where else record.mean(metric, score)
            for seed, record in self.records.items()
        }

    def estimate(self, metric: str, score: str, where: str = "") -> Estimate:
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

        return min(SCORES, key=rank)

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

        kinds = (VALIDATION, *records[0].unknowns[SCORES[0]])
        ranks = mean_ranks({score: {kind: averaged(score, kind) for kind in kinds} for score in SCORES})
        return best(ranks, {score: (get(score).reads != "logits", records[0].stored[score]) for score in SCORES})

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
class Findings:
    """All rows that have at least one cell."""

    rows: Mapping[str, RowResult]
    missing: int  # number of planned cells that are missing
    others: Mapping[str, RowResult] = field(default_factory=dict)  # rows of other tables: one rate, budgets, protocols
    best: str = ""  # the name of the row that is recommended
    oe_seconds: Mapping[Machine, float] = field(default_factory=dict)  # CPU seconds of OE with the table's budget

    @classmethod
    def of(cls, study: Study) -> "Findings":
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
                records = study.records_of(trial, row.seeds() if other else SEEDS + MORE_SEEDS)
                (others if other else rows)[row.name] = RowResult(
                    row, trial, records, own_score(row), tried, len(candidates)
                )
        best = study.recommended()
        name = "" if best is None else _recommended(study, rows, *best)
        return cls(rows, len(study.missing()), others, name, _oe_seconds(study, rows.get(REFERENCE)))

    def difference(
        self, name: str, metric: str, score: str, reference_score: str, where: str = ""
    ) -> Difference | None:
        """A row's metric minus OE's, over the seeds that both have; None for OE itself with the same score."""
        reference, found = self.rows.get(REFERENCE), self.rows[name]
        if reference is None or not found.row.method or (name == REFERENCE and score == reference_score):
            return None
        return paired_difference(
            found.over_seeds(metric, score, where), reference.over_seeds(metric, reference_score, where)
        )

    def agreement(self) -> dict[tuple[str, str], float]:
        """How much two OOD sets agree on the order of the rows, each with its own score, by FPR95."""
        rows = self.rows.values()
        return rank_agreement({name: [row.estimate("fpr95", row.own, name).mean for row in rows] for name in OOD})

    def recommended(self) -> tuple[RowResult, str] | None:
        """The row that is recommended, and the score to take."""
        found = self.rows.get(self.best)
        return None if found is None else (found, found.chosen_score)


def _oe_seconds(study: Study, reference: RowResult | None) -> dict[Machine, float]:
    """Means over the cells of OE's row; on machines that made none of these, over its other rates and weights."""

    def budget(trial: Mapping[str, Any]) -> dict[str, Any]:
        recipe = {key: value for key, value in trial["recipe"].items() if key not in ("lr", "seed")}
        return {**trial, "settings": {}, "recipe": recipe}

    def means(records: Iterable[Record]) -> dict[Machine, float]:
        seconds: dict[Machine, list[float]] = {}
        for record in records:
            seconds.setdefault(record.made_on, []).append(record.cost["cpu_seconds"])
        return {machine: float(np.mean(found)) for machine, found in seconds.items()}

    same_budget = budget(Trial(REFERENCE).as_dict())
    others = [record for record in study.records if budget(record.trial) == same_budget]
    return means(others) | means(reference.records.values() if reference else ())


def _recommended(study: Study, rows: dict[str, RowResult], row: Row, trial: Trial) -> str:
    """The name of the row that is recommended; a row of its own where its settings are not those chosen for its row."""
    if rows[row.name].trial == trial:
        return row.name
    title = f"recommended: {row.title}, learning rate {trial.recipe.lr:g}"
    records = study.records_of(trial, [each.seed for each in study.repeats()])
    rows[RECOMMENDED] = RowResult(replace(row, name=RECOMMENDED, title=title), trial, records, own_score(row))
    return RECOMMENDED
