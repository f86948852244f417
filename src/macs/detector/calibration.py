"""From the confidences of ID images alone to a threshold that keeps a stated share of new ones.

Split conformal ranking: let c_1, ..., c_n be the confidences of n ID images that the network was not trained on, and

    k = floor((n + 1)(1 - keep)),        tau = the k-th smallest c_i,        x is ID if c(x) >= tau.

If a new ID image is exchangeable with the n, its rank among the n + 1 is uniform and P(c < tau) <= k / (n + 1), so

    P(kept) >= 1 - k / (n + 1) >= keep,                                     whatever the network and the images are.

That is an average over calibration sets. Given the one at hand, the share of new ID images kept is itself random:

    share kept ~ Beta(n + 1 - k, k),

of which `interval` holds the central 95%. A share that is counted on m new images scatters around that once more:

    number kept of m ~ BetaBinomial(m, n + 1 - k, k),

of which `interval_on(m)` holds the central 95%. These statements are exact where no two confidences are equal; ties can
only keep more, since an image exactly at the threshold is kept. Nothing is promised about OOD images.

With one threshold per class the images are grouped by the class that the network *predicts* (Mondrian conformal), which
is known for a new image too; so the statements hold within each predicted class. Grouped by true class they would not.

Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, 2005 (Ch. 4 for groups).
Vovk: Conditional Validity of Inductive Conformal Predictors, ACML 2012 (given the calibration set).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.settings import Span


@dataclass(frozen=True)
class Threshold:
    """One threshold and what is known of it; `group` is the predicted class, or empty where there is one for all."""

    group: str
    images: int  # n
    rank: int  # k
    value: float  # tau, a float32
    interval: tuple[float, float]  # of the share of new ID images kept, with 95% probability

    def interval_on(self, images: int) -> tuple[float, float]:
        """The same for the share that is counted on so many new ID images, whose own chance makes it wider."""
        from scipy.stats import betabinom

        low, high = betabinom(images, self.images + 1 - self.rank, self.rank).interval(0.95)
        return float(low) / images, float(high) / images


@dataclass(frozen=True)
class Check:
    """What a threshold kept of ID images that had no part in finding it, and what was to be expected."""

    group: str
    images: int
    kept: float
    expected: tuple[float, float]  # with 95% probability

    def __str__(self) -> str:
        low, high = self.expected
        verdict = "as" if low <= self.kept <= high else "NOT as"
        of = f"other images predicted as {self.group}" if self.group else "other ID images"
        return f"Of {self.images:,} {of} it keeps {self.kept:.2%}, {verdict} expected ({low:.1%} to {high:.1%})."


@dataclass(frozen=True)
class Calibration:
    """How a detector's thresholds were found."""

    keep: float
    score: str
    data: str
    images: int
    thresholds: tuple[Threshold, ...]  # one, or one for each class in order
    accuracy: float | None = None  # None where the images have no labels
    checks: tuple[Check, ...] = ()  # one per threshold that could be checked
    passing: dict[str, float] = field(default_factory=dict)  # share of each outlier set that would be taken for ID
    ranked: tuple[int, ...] = ()  # calibration confidences kept for p-values, per threshold

    @property
    def per_class(self) -> bool:
        return len(self.thresholds) > 1

    @property
    def values(self) -> NDArray[np.float32]:
        """The threshold as a number, or one for each class."""
        values = np.array([threshold.value for threshold in self.thresholds], np.float32)
        return values if self.per_class else values.reshape(())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def checked(self, predictions: NDArray[np.int64], is_kept: NDArray[np.bool_]) -> "Calibration":
        """With what became of other ID images, counted for each threshold."""
        checks = []
        for label, one in enumerate(self.thresholds):
            kept = is_kept[predictions == label] if self.per_class else is_kept
            if len(kept):
                checks.append(Check(one.group, len(kept), float(kept.mean()), one.interval_on(len(kept))))
        return replace(self, checks=tuple(checks))

    def __str__(self) -> str:
        least = f"at least {self.keep}"
        lines = [f"Calibrated on {self.images:,} images of {self.data}; an image is ID if its {self.score} reaches"]
        for one in self.thresholds:
            low, high = one.interval
            where = f"  {one.group}: " if one.group else "  "
            lines.append(
                f"{where}{one.value:.6g}  (n = {one.images:,}, k = {one.rank:,}: this threshold keeps "
                f"{low:.1%} to {high:.1%} of new ID images, with 95% probability)"
            )
        within = " within each predicted class" if self.per_class else ""
        lines.append(f"A new ID image is kept with probability {least}{within}, averaged over calibration sets.")
        lines += map(str, self.checks)
        if self.accuracy is not None:
            lines.append(f"Accuracy on these images: {self.accuracy:.2%}.")
        lines += [f"Of {name}, {share:.2%} would pass as ID." for name, share in self.passing.items()]
        return "\n".join(lines)


def calibrate(
    confidences: NDArray[np.float32],
    predictions: NDArray[np.int64],
    labels: NDArray[np.int64] | None,
    classes: Sequence[str],
    *,
    keep: float,
    per_class: bool,
    score: str,
    data: str,
    ranked: tuple[int, ...] = (),
) -> Calibration:
    """Everything from what the network says of the ID images."""
    if per_class:
        thresholds = thresholds_by_class(confidences, predictions, classes, keep)
    else:
        thresholds = (conformal_threshold(confidences, keep),)
    accuracy = None if labels is None else float((predictions == labels).mean())
    return Calibration(keep, score, data, len(confidences), thresholds, accuracy, ranked=ranked)


def share_to_keep(keep: float) -> float:
    """The share, if it is one that a threshold can keep."""
    return Span(0, 1, open="both").hold("The share of ID images to keep", keep)


def rank(images: int, keep: float) -> int:
    """k = floor((n + 1)(1 - keep)), in the decimals that the user wrote: 10 * (1 - 0.9) is 1 and not 0.999..."""
    return math.floor((images + 1) * (1 - Fraction(str(share_to_keep(keep)))))


def images_needed(keep: float) -> int:
    """The least n with k >= 1: n >= 1 / (1 - keep) - 1."""
    return images_to_resolve(1 - Fraction(str(keep)))


def images_to_resolve(level: Fraction) -> int:
    """The least n for which a p-value, which is at least 1 / (n + 1), can be as small as the level."""
    return math.ceil(1 / level - 1)


def conformal_threshold(confidences: NDArray[np.floating], keep: float, group: str = "") -> Threshold:
    """The threshold that n confidences give, refused where n is too small to promise anything."""
    from scipy.special import betaincinv

    n, k = len(confidences), rank(len(confidences), keep)
    if k < 1:
        where = f" predicted as {group}" if group else ""
        raise MacsError(
            f"To keep {keep} of the ID images takes at least {images_needed(keep)} calibration images{where}, "
            f"and there are {n}; add images, or keep less."
        )
    tau = np.partition(confidences, k - 1)[k - 1]
    if not math.isfinite(tau):
        raise MacsError(f"The threshold would be {tau}: the network's outputs are too large for its score; use msp.")
    low, high = betaincinv(n + 1 - k, k, [0.025, 0.975]).tolist()
    return Threshold(group, n, k, float(np.float32(tau)), (low, high))


def thresholds_by_class(
    confidences: NDArray[np.floating], predictions: NDArray[np.int64], classes: Sequence[str], keep: float
) -> tuple[Threshold, ...]:
    """One threshold for each predicted class; classes with too few images are refused together."""
    counts = np.bincount(predictions, minlength=len(classes))
    short = [f"{name} ({count})" for name, count in zip(classes, counts, strict=True) if rank(int(count), keep) < 1]
    if short:
        raise MacsError(
            f"To keep {keep} takes at least {images_needed(keep)} images predicted as each class, and these have "
            f"fewer: {', '.join(short)}; add images, keep less, or use one threshold for all."
        )
    groups = (confidences[predictions == label] for label in range(len(classes)))
    return tuple(conformal_threshold(group, keep, name) for group, name in zip(groups, classes, strict=True))
