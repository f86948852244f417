"""Thresholds to choose from, and how many images of each set every one of them keeps.

An image is kept, that is taken for a known one, if its confidence is at or above the threshold (MaCS paper, Eq. 2). The
counts are exact, and so is the threshold as it is shown: every number here is a short decimal.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

ConfidenceArray = NDArray[np.floating[Any]]

PER_SET = 200  # thresholds at each half percent of each set
BETWEEN = 100  # and at equal distances, for where there are no images


@dataclass(frozen=True)
class Thresholds:
    """The first set is the known one."""

    values: list[float]  # ascending
    kept: list[list[int]]  # for each set, how many of its images each threshold keeps
    images: list[int]  # in each set

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of each set that each threshold keeps: sets x thresholds."""
        shares: NDArray[np.float64] = np.array(self.kept) / np.array(self.images)[:, None]
        return shares

    def keeping(self, percent: int) -> int:
        """Position of the highest threshold that keeps that much of the known images, decided in integers."""
        enough = [100 * kept >= percent * self.images[0] for kept in self.kept[0]]
        return max(index for index, is_enough in enumerate(enough) if is_enough)

    def catching(self, percent: int) -> int:
        """Position of the lowest threshold that catches that much of the unknown images, as the mean over the sets."""
        caught = 1 - self.shares[1:].mean(axis=0)
        return next((index for index, share in enumerate(caught) if share >= percent / 100), len(self.values) - 1)


def choose(sets: Sequence[ConfidenceArray]) -> Thresholds:
    """Thresholds for sets of confidences, the known set first.

    They lie at each half percent of every set, where the counts change, and evenly between. Exactly the thresholds of
    FPR95 are among them: the highest that keeps ceil(0.95 n) of n known images.
    """
    ascending = [np.sort(confidences).astype(np.float64) for confidences in sets]
    levels = np.unique(np.concatenate(ascending))
    lowest, highest = float(levels[0]), float(levels[-1])
    step = (highest - lowest) / BETWEEN or 1.0
    marks = np.unique([one[index * len(one) // PER_SET] for one in ascending for index in range(PER_SET)])
    below = np.concatenate([[lowest - step], levels])[np.searchsorted(levels, marks)]
    # Between one confidence and the next every threshold keeps the same images, so we take the shortest to write.
    values = {shortest(low, high) for low, high in zip(below.tolist(), marks.tolist(), strict=True)}
    values |= {shortest(high - step, high) for high in np.linspace(lowest, highest, BETWEEN + 1).tolist()}
    chosen = sorted(values)
    kept = [(len(one) - np.searchsorted(one, chosen, "left")).tolist() for one in ascending]
    return Thresholds(chosen, kept, [len(one) for one in ascending])


def written(threshold: float) -> str:
    """A threshold as a browser writes it too."""
    return str(threshold).removesuffix(".0")


def shortest(low: float, high: float) -> float:
    """The decimal number with the fewest digits in (low, high]."""
    first = -math.ceil(math.log10(high - low))
    for digits in range(first, first + 18):
        candidate = round(math.floor(high * 10.0**digits) / 10.0**digits, digits)
        if low < candidate <= high:
            return candidate
    return high
