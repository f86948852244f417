"""The rule that chooses a training, its settings and a score together, without any test image.

A candidate is a training and a score. It is ranked among all candidates on each kind of unknown images: validation
outliers, and images that macs makes from validation images. The rank on a kind is that of FPR95, with OOD as positive;
ties are broken by AUROC. The candidate with the lowest mean rank is chosen, among those whose network is at most one
point less accurate on validation images than the plain classifier.

    minimise   mean over kinds of rank(FPR95 on the kind)
    among      validation accuracy >= that of the plain classifier - 0.01

A candidate is judged by one cell, that of its lowest seed; further seeds say how good the choice was, and do not change
it. `agreement` judges the rule itself: how well its order of all candidates agrees with their order on the test sets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from macs.research.study_cells import METRICS, VALIDATION, CellRecord
from macs.research.study_plan import Row, Trial

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALLOWED_LOSS = 0.01  # of validation accuracy, against the plain classifier
FPR95, AUROC = METRICS.index("fpr95"), METRICS.index("auroc")


@dataclass(frozen=True)
class RankedCandidate:
    """A training and a score, with its mean rank over the kinds of unknown images."""

    row: Row
    trial: Trial
    score: str
    record: CellRecord
    rank: float
    allowed: bool  # by its accuracy


def ranked(found: Iterable[tuple[Row, Trial, CellRecord]], plain: CellRecord) -> list[RankedCandidate]:
    """Return every pair of a training and a score by its mean rank, the best first; `plain` is the classifier's cell.

    Cells without the kinds that macs makes cannot be ranked, and are left out.
    """
    cells = [each for each in found if each[2].unknowns]
    pairs = [(*each, score) for each in cells for score in each[2].unknowns]
    if not pairs:
        return []
    kinds = [by_kind(record, score) for _, _, record, score in pairs]
    ranks = np.mean([ranks_of([of[kind] for of in kinds]) for kind in kinds[0]], axis=0)
    least = plain.validation_accuracy - ALLOWED_LOSS
    candidates = [
        RankedCandidate(row, trial, score, record, float(rank), record.validation_accuracy >= least)
        for (row, trial, record, score), rank in zip(pairs, ranks, strict=True)
    ]
    return sorted(candidates, key=lambda each: each.rank)


def by_kind(record: CellRecord, score: str) -> Mapping[str, Sequence[float]]:
    """Return the metrics of a score on each kind of unknown validation images."""
    return {VALIDATION: record.scores[score][VALIDATION], **record.unknowns[score]}


def ranks_of(metrics: Sequence[Sequence[float]]) -> "NDArray[np.float64]":
    """Return the rank of each candidate on one kind, 1 for the lowest FPR95; candidates that tie share their ranks."""
    keys = np.array([(of[FPR95], -of[AUROC]) for of in metrics])
    _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)  # sorted by FPR95, then AUROC
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[group.reshape(-1)]


def agreement(candidates: Sequence[RankedCandidate]) -> tuple[float, float]:
    """Return Kendall's tau between the order on the test sets and two others: that of the rule, and that of FPR95 on
    validation outliers alone."""
    from macs.research.seed_statistics import rank_agreement

    orders = {
        "test": [each.record.mean("fpr95", each.score) for each in candidates],
        "rule": [each.rank for each in candidates],
        "outliers": [each.record.value("fpr95", each.score, VALIDATION) for each in candidates],
    }
    found = rank_agreement(orders)
    return found["test", "rule"], found["test", "outliers"]
