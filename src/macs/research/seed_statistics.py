"""What a few seeds say: means, standard errors, paired differences with intervals, and how stable an order is.

Two methods are compared by the differences of their results with the same seed, which share the order of the training
images. With n seeds the interval is Student's: mean ± t(0.975, n - 1) * deviation / sqrt(n).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from macs.metrics import deviation, mean_and_error

LEVEL = 0.95  # of an interval


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, and half the width of its interval; nan for a single pair."""

    mean: float
    half_width: float
    pairs: int

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return abs(self.mean) > self.half_width  # False where the half width is nan


@dataclass(frozen=True)
class Estimate:
    """The mean over seeds and its standard error; nan for a single seed."""

    mean: float
    error: float
    seeds: int


def estimate(values: Sequence[float]) -> Estimate:
    return Estimate(*mean_and_error(values), len(values))


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Ours minus theirs over the seeds that both have; None if they share none."""
    from scipy.stats import t

    shared = sorted(set(ours) & set(theirs))
    if not shared:
        return None
    gaps = [ours[seed] - theirs[seed] for seed in shared]
    count = len(gaps)
    reach = float(t.ppf((1 + LEVEL) / 2, count - 1)) if count > 1 else math.nan
    return Difference(float(np.mean(gaps)), reach * deviation(gaps) / math.sqrt(count), count)


def rank_agreement(by_set: Mapping[str, Sequence[float]]) -> dict[tuple[str, str], float]:
    """Kendall's tau-b between the orders of the rows on each pair of sets: 1 if equal, -1 if reversed."""
    from scipy.stats import kendalltau

    return {(a, b): float(kendalltau(by_set[a], by_set[b]).statistic) for a, b in combinations(by_set, 2)}
