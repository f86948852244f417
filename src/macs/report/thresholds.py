"""Thresholds to choose from, and how many images of each set each threshold keeps.

An image is kept, that is, taken for a known one, if its confidence is at or above the threshold (MaCS paper, Eq. 2).
The counts are exact, and so are the thresholds on the page: each is a short decimal number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

ConfidenceArray = NDArray[np.floating[Any]]

PER_SET = 200  # thresholds per set: one at each half percent
BETWEEN = 100  # further thresholds at equal distances, for ranges without images


@dataclass(frozen=True)
class Thresholds:
    """The first set is the known one."""

    values: list[float]  # ascending
    kept: list[list[int]]  # for each set, how many of its images each threshold keeps
    images: list[int]  # in each set
    own: int | None = None  # index of the detector's own threshold, if it has one for all classes

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The share of each set that each threshold keeps: sets x thresholds."""
        shares: NDArray[np.float64] = np.array(self.kept) / np.array(self.images)[:, None]
        return shares

    def keeping(self, percent: int) -> int:
        """Index of the highest threshold that keeps `percent` of the known images, computed in integers."""
        enough = [100 * kept >= percent * self.images[0] for kept in self.kept[0]]
        return max(index for index, is_enough in enumerate(enough) if is_enough)

    def catching(self, percent: int) -> int:
        """Index of the lowest threshold that catches `percent` of the unknown images, on average over the sets."""
        caught = 1 - self.shares[1:].mean(axis=0)
        return next((index for index, share in enumerate(caught) if share >= percent / 100), len(self.values) - 1)


def choose(sets: Sequence[ConfidenceArray], own: float | None = None) -> Thresholds:
    """Return thresholds for sets of confidences, the known set first.

    They lie at each half percent of every set, where the counts change, and at equal distances between. The exact
    threshold of FPR95 is among them: the highest that keeps ceil(0.95 n) of n known images. So is a detector's `own`,
    in about six digits, which keep the same images.
    """
    ascending = [np.sort(confidences).astype(np.float64) for confidences in sets]
    levels = np.unique(np.concatenate(ascending))
    lowest, highest = float(levels[0]), float(levels[-1])
    step = (highest - lowest) / BETWEEN or 1.0
    marks = np.unique([values[index * len(values) // PER_SET] for values in ascending for index in range(PER_SET)])
    below = np.concatenate([[lowest - step], levels])[np.searchsorted(levels, marks)]
    # All thresholds between two neighbouring confidences keep the same images, so we take the shortest decimal.
    decimals = {shortest(low, high) for low, high in zip(below.tolist(), marks.tolist(), strict=True)}
    decimals |= {shortest(high - step, high) for high in np.linspace(lowest, highest, BETWEEN + 1).tolist()}
    shown = None if own is None else rounded_down(own, levels)
    thresholds = sorted(decimals if shown is None else {*decimals, shown})
    kept = [(len(values) - np.searchsorted(values, thresholds, "left")).tolist() for values in ascending]
    images = [len(values) for values in ascending]
    return Thresholds(thresholds, kept, images, None if shown is None else thresholds.index(shown))


def rounded_down(threshold: float, levels: NDArray[np.float64]) -> float:
    """Return a threshold in about six digits, which keeps the same images: no confidence lies between the two."""
    below = levels[levels < threshold]
    nearest = threshold - 1e-6 * (abs(threshold) or 1.0)
    return shortest(max(nearest, float(below[-1])) if len(below) else nearest, threshold)


def written(threshold: float) -> str:
    """Return a threshold as text, the same as in a browser."""
    return str(threshold).removesuffix(".0")


def shortest(low: float, high: float) -> float:
    """Return the decimal number with the fewest digits in (low, high]."""
    first = -math.ceil(math.log10(high - low))
    for digits in range(first, first + 18):
        candidate = round(math.floor(high * 10.0**digits) / 10.0**digits, digits)
        if low < candidate <= high:
            return candidate
    return high
