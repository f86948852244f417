"""The confidences of ID and OOD images in ascending order, and the values that several metrics share, computed once.

Thresholds lie at the confidences that occur, and images of equal confidence are flagged or accepted together. Recall
grows in jumps and rarely hits 95% exactly. `fpr_rule` says which threshold counts:

    first      the first with recall >= 0.95, the field's usual rule and the default.
    nearest    the one with recall nearest 0.95, as in the paper's released code. Of two that are equally near, the one
               with the higher recall (that code leaves it to rounding); of several with that recall, the one with the
               most false positives, unless all positives are caught.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from macs.core.errors import MacsError

FprRule = Literal["first", "nearest"]
Numbers = np.ndarray[Any, np.dtype[Any]]

# Thresholds looked up at once: a block and the matching stretch of the other side fit in the processor's cache.
_BLOCK = 1 << 14


class Areas(NamedTuple):
    """The areas under the ROC curve and under the precision-recall curve, the latter by two rules."""

    auroc: float
    average_precision: float
    trapezoid: float


@dataclass(frozen=True)
class Ranked:
    """The values of both classes, ascending; an image is flagged as positive if its value is low.

    With confidences as values, `positive` are the OOD images and `negative` the ID images. `swapped` takes ID as
    positive: all values are negated, so that positives are low again.
    """

    positive: Numbers
    negative: Numbers
    fpr_rule: FprRule = "first"

    @classmethod
    def of(cls, conf_in: Any, conf_out: Any, fpr_rule: FprRule = "first") -> Self:
        """Return the confidences of ID and OOD images, checked and sorted, OOD as positive."""
        if fpr_rule not in ("first", "nearest"):
            raise MacsError(f"There is no FPR95 rule called {fpr_rule!r}; use 'first' or 'nearest'.")
        known, unknown = _ascending(conf_in, "ID"), _ascending(conf_out, "OOD")
        _refuse_labels(known, unknown)
        common = np.result_type(known, unknown)
        return cls(unknown.astype(common, copy=False), known.astype(common, copy=False), fpr_rule)

    @cached_property
    def swapped(self) -> "Ranked":
        """The same images with ID as positive."""
        return Ranked(-self.negative[::-1], -self.positive[::-1], self.fpr_rule)

    @cached_property
    def areas(self) -> Areas:
        """All areas, from one pass over the thresholds.

        AUROC = P(positive < negative) + P(positive = negative) / 2
        AUPR  = mean over positives of P,  P = TP / (TP + FP),  TP, FP = number of positives, negatives <= that positive
        The trapezoidal rule replaces P by the mean of P and the precision one threshold earlier, which counts TP and FP
        < that positive and is 1 as long as nothing is flagged.
        """
        low, high = self.positive, self.negative
        ends = np.append(np.flatnonzero(low[1:] != low[:-1]) + 1, len(low))  # after each run of equal values
        precisions, not_above = 0.0, 0
        before = 0.0 if high[0] < low[0] else float(ends[0])
        for start in range(0, len(ends), _BLOCK):
            true_positives = ends[start : start + _BLOCK]
            ties = np.diff(true_positives, prepend=ends[start - 1] if start else 0)
            thresholds = low[true_positives - 1]
            begin, end = np.searchsorted(high, thresholds[0], "left"), np.searchsorted(high, thresholds[-1], "right")
            below = begin + np.searchsorted(high[begin:end], thresholds, "left")
            tied = high.take(below, mode="clip") == thresholds
            false_positives = below.copy()
            false_positives[tied] = np.searchsorted(high, thresholds[tied], "right")
            caught = true_positives - ties
            precisions += float(ties @ (true_positives / (true_positives + false_positives)))
            before += float(ties @ (caught / np.maximum(caught + below, 1)))
            not_above += int(ties @ (below + false_positives))
        # Twice the number of ordered pairs, a tie being half of one, is an integer: only the division rounds.
        pairs = len(low) * len(high)
        return Areas(
            auroc=(2 * pairs - not_above) / (2 * pairs),
            average_precision=precisions / len(low),
            trapezoid=(precisions + before) / (2 * len(low)),
        )

    def fpr(self, percent: int) -> float:
        """Share of negatives flagged when `percent` of the positives are; in integers, since no float is 0.95."""
        low, high, n = self.positive, self.negative, len(self.positive)
        threshold = low[(percent * n + 99) // 100 - 1]
        if self.fpr_rule == "nearest":
            fewer, more = (int(np.searchsorted(low, threshold, side)) for side in ("left", "right"))
            caught = more if 100 * more - percent * n <= percent * n - 100 * fewer else fewer
            if caught < n:
                return int(np.searchsorted(high, low[caught], "left")) / len(high)
        return int(np.searchsorted(high, threshold, "right")) / len(high)


def _ascending(confidences: Any, side: str) -> Numbers:
    ascending = np.sort(as_array(confidences, side))
    if not (np.isfinite(ascending[0]) and np.isfinite(ascending[-1])):  # nan is sorted to the end
        raise MacsError(f"Some {side} confidences are infinite or not numbers; look for the images that cause them.")
    return ascending


def as_array(confidences: Any, side: str) -> Numbers:
    """Return the confidences as a one-dimensional array of at least one floating-point number."""
    if hasattr(confidences, "detach"):  # a torch tensor, without importing torch; numpy has no bfloat16
        confidences = confidences.detach().cpu()
        if confidences.is_floating_point() and confidences.element_size() < 4:
            confidences = confidences.float()
    array = np.asarray(confidences)
    if array.ndim != 1 or not len(array):
        raise MacsError(
            f"The {side} confidences have the shape {array.shape}; give one number per image, and at least one."
        )
    if array.dtype.kind not in "fiub":
        raise MacsError(f"The {side} confidences are of type {array.dtype}; give numbers.")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _refuse_labels(ascending_in: Numbers, ascending_out: Numbers) -> None:
    """Refuse scores and labels, as scikit-learn takes them, in place of the confidences of two sets of images."""
    binary = [_is_binary(side) for side in (ascending_in, ascending_out)]
    if len(ascending_in) == len(ascending_out) and binary[0] != binary[1]:
        which = "first" if binary[0] else "second"
        raise MacsError(
            f"The {which} argument holds labels, not confidences; call ood_metrics(confidences[is_id], "
            "confidences[~is_id]), with the confidences of ID images first and higher ones for ID."
        )


def _is_binary(ascending: Numbers) -> bool:
    """Return whether both of two labels, 0 and 1 or -1 and 1, occur; a saturated softmax gives only 1."""
    low, high = ascending[0], ascending[-1]
    return (
        low in (-1, 0)
        and high == 1
        and bool(np.searchsorted(ascending, low, "right") == np.searchsorted(ascending, high))
    )
