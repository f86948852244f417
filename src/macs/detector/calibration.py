"""From the confidences of ID images alone to a threshold that keeps a stated share of new ones, and to p-values.

Split conformal ranking: let c_1, ..., c_n be the confidences of n ID images that the network was not trained on, and

    k = floor((n + 1)(1 - keep)),        tau = the k-th smallest c_i,        x is ID if c(x) >= tau.

If a new ID image is exchangeable with the n, its rank among the n + 1 is uniform and P(c < tau) <= k / (n + 1), so

    P(kept) >= 1 - k / (n + 1) >= keep,                                     whatever the network and the images are.

That is an average over calibration sets. Given the one at hand, the share of new ID images kept is itself random:

    share kept ~ Beta(n + 1 - k, k),

of which `interval` holds the central 95%. A share that is counted on m new images varies in addition to that:

    number kept of m ~ BetaBinomial(m, n + 1 - k, k),

of which `interval_on(m)` holds the central 95%. These statements are exact if no two confidences are equal; ties can
only keep more, since an image exactly at the threshold is kept. Nothing is promised about OOD images.

With one threshold per class the images are grouped by the class that the network *predicts* (Mondrian conformal), which
is known for a new image too; so the statements hold within each predicted class. Grouped by true class they would not.

The conformal p-value is the rank of a confidence among the same confidences, per class among those of its class:

    p(x) = (1 + #{i : c_i <= c(x)}) / (n + 1),                              P(p <= a) <= a for every a,

so that at most one ID image in a hundred has a p-value of 0.01 or less. A good network gives OOD images small ones.

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
from macs.predictions import Predictions

IMAGES, ROWS = "images", "rows"


@dataclass(frozen=True)
class Threshold:
    """A threshold and its statistics; `group` is the predicted class, or empty for the threshold of all classes."""

    group: str
    images: int  # n
    rank: int  # k
    value: float  # tau, a float32
    interval: tuple[float, float]  # 95% interval of the share of new ID images that is kept

    def interval_on(self, images: int) -> tuple[float, float]:
        """The 95% interval of the share counted on so many new ID images, which is wider, as these vary too."""
        from scipy.stats import betabinom

        low, high = betabinom(images, self.images + 1 - self.rank, self.rank).interval(0.95)
        return float(low) / images, float(high) / images


@dataclass(frozen=True)
class Check:
    """The share that a threshold keeps of ID images that it was not calibrated on, and the share that was expected."""

    group: str
    images: int
    kept: float
    expected: tuple[float, float]  # 95% interval

    def __str__(self) -> str:
        return self.described(IMAGES)

    def described(self, units: str) -> str:
        """The check in a sentence."""
        low, high = self.expected
        verdict = "as" if low <= self.kept <= high else "NOT as"
        of = f"other {units} predicted as {self.group}" if self.group else f"other ID {units}"
        return f"Of {self.images:,} {of} it keeps {self.kept:.2%}, {verdict} expected ({low:.1%} to {high:.1%})."


@dataclass(frozen=True)
class Calibration:
    """How a detector's thresholds were found."""

    keep: float
    score: str
    data: str
    images: int
    thresholds: tuple[Threshold, ...]  # one, or one per class in the order of the classes
    accuracy: float | None = None  # None if the images have no labels
    checks: tuple[Check, ...] = ()  # one per threshold that could be checked
    passing: dict[str, float] = field(default_factory=dict)  # share of each outlier set that would pass as ID
    ranked: tuple[int, ...] = ()  # calibration confidences kept for p-values, per threshold
    unit: str = IMAGES  # what is judged, in the plural

    @property
    def per_class(self) -> bool:
        return len(self.thresholds) > 1

    @property
    def values(self) -> NDArray[np.float32]:
        """The threshold as a single number, or one number per class."""
        values = np.array([threshold.value for threshold in self.thresholds], np.float32)
        return values if self.per_class else values.reshape(())

    def as_dict(self) -> dict[str, Any]:
        """The record as plain values; the unit is left out if it is images, as it was before there were others."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("unit", IMAGES)}

    def checked(self, predictions: NDArray[np.int64], is_kept: NDArray[np.bool_]) -> "Calibration":
        """This calibration with a check of each threshold on other ID images."""
        checks = []
        for label, threshold in enumerate(self.thresholds):
            kept = is_kept[predictions == label] if self.per_class else is_kept
            if len(kept):
                expected = threshold.interval_on(len(kept))
                checks.append(Check(threshold.group, len(kept), float(kept.mean()), expected))
        return replace(self, checks=tuple(checks))

    def __str__(self) -> str:
        least, units, one = f"at least {self.keep}", self.unit, self.unit.removesuffix("s")
        an = "an" if one == "image" else "a"
        lines = [f"Calibrated on {self.images:,} {units} of {self.data}; {an} {one} is ID if its {self.score} reaches"]
        for threshold in self.thresholds:
            low, high = threshold.interval
            where = f"  {threshold.group}: " if threshold.group else "  "
            lines.append(
                f"{where}{threshold.value:.6g}  (n = {threshold.images:,}, k = {threshold.rank:,}: this threshold "
                f"keeps {low:.1%} to {high:.1%} of new ID {units}, with 95% probability)"
            )
        within = " within each predicted class" if self.per_class else ""
        lines.append(f"A new ID {one} is kept with probability {least}{within}, averaged over calibration sets.")
        lines += [check.described(units) for check in self.checks]
        if self.accuracy is not None:
            lines.append(f"Accuracy on these {units}: {self.accuracy:.2%}.")
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
    unit: str = IMAGES,
) -> Calibration:
    """The calibration from the network's answers on the calibration images."""
    if per_class:
        thresholds = thresholds_by_class(confidences, predictions, classes, keep, unit)
    else:
        thresholds = (conformal_threshold(confidences, keep, unit=unit),)
    accuracy = None if labels is None else float((predictions == labels).mean())
    return Calibration(keep, score, data, len(confidences), thresholds, accuracy, ranked=ranked, unit=unit)


def share_to_keep(keep: float) -> float:
    """Return the share; raise if no threshold can keep it."""
    return Span(0, 1, open="both").hold("keep, the share of new ID images to keep or confidence level,", keep)


def rank(images: int, keep: float) -> int:
    """k = floor((n + 1)(1 - keep)), computed exactly: in floating point 10 * (1 - 0.9) would be 0.999..., not 1."""
    return math.floor((images + 1) * (1 - Fraction(str(share_to_keep(keep)))))


def images_needed(keep: float) -> int:
    """The least n with k >= 1: n >= 1 / (1 - keep) - 1."""
    return images_to_resolve(1 - Fraction(str(keep)))


def images_to_resolve(level: Fraction) -> int:
    """The least n for which a p-value, which is at least 1 / (n + 1), can be as small as the level."""
    return math.ceil(1 / level - 1)


def conformal_threshold(
    confidences: NDArray[np.floating], keep: float, group: str = "", unit: str = IMAGES
) -> Threshold:
    """The threshold from n confidences; an error if n is too small for any promise."""
    from scipy.special import betaincinv

    n, k = len(confidences), rank(len(confidences), keep)
    if k < 1:
        where = f" predicted as {group}" if group else ""
        raise MacsError(
            f"To keep {keep} of the ID {unit} takes at least {images_needed(keep)} calibration {unit}{where}, "
            f"but there are {n}; add {unit}, or keep less."
        )
    tau = np.partition(confidences, k - 1)[k - 1]
    if not math.isfinite(tau):
        raise MacsError(f"The threshold would be {tau}: the network's outputs are too large for its score; use msp.")
    low, high = betaincinv(n + 1 - k, k, [0.025, 0.975]).tolist()
    return Threshold(group, n, k, float(np.float32(tau)), (low, high))


def thresholds_by_class(
    confidences: NDArray[np.floating],
    predictions: NDArray[np.int64],
    classes: Sequence[str],
    keep: float,
    unit: str = IMAGES,
) -> tuple[Threshold, ...]:
    """One threshold per predicted class; one error names all classes with too few images."""
    counts = np.bincount(predictions, minlength=len(classes))
    short = [f"{name} ({count})" for name, count in zip(classes, counts, strict=True) if rank(int(count), keep) < 1]
    if short:
        raise MacsError(
            f"To keep {keep} takes at least {images_needed(keep)} {unit} predicted as each class, but these have "
            f"fewer: {', '.join(short)}; add {unit}, keep less, or use one threshold for all."
        )
    groups = (confidences[predictions == label] for label in range(len(classes)))
    return tuple(conformal_threshold(group, keep, name, unit) for group, name in zip(groups, classes, strict=True))


MOST = 10_000  # confidences kept: 40 kB in the file, and p-values in steps of 0.0001


@dataclass(frozen=True, eq=False)
class PValues:
    """Calibration confidences, ascending within each group: one group for all images, or one per predicted class.

    An instance is called with predictions and returns their p-values.
    """

    confidences: NDArray[np.float32]
    counts: NDArray[np.int64]  # images in each group

    @classmethod
    def of(cls, predictions: Predictions, classes: int, per_class: bool, seed: int = 0) -> "PValues":
        """Keep the confidences of calibration images; if there are more than MOST, a random draw of them."""
        chosen = np.random.default_rng(seed).permutation(len(predictions))[:MOST]
        confidences = predictions.confidence[chosen].astype(np.float32)
        groups = predictions.index[chosen] if per_class else np.zeros(len(chosen), np.int64)
        order = np.lexsort((confidences, groups))
        return cls(confidences[order], np.bincount(groups, minlength=classes if per_class else 1))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.counts.tolist())

    def __call__(self, predictions: Predictions) -> NDArray[np.float32]:
        """Return one p-value per image; a confidence that is NaN ranks below all others."""
        result = np.empty(len(predictions), np.float32)
        ends = np.cumsum(self.counts)
        for index, (count, end) in enumerate(zip(self.counts, ends, strict=True)):
            group = self.confidences[end - count : end]
            members = predictions.index == index if len(self.counts) > 1 else np.ones(len(predictions), bool)
            confidences = predictions.confidence[members]
            below = np.where(np.isnan(confidences), 0, np.searchsorted(group, confidences, side="right"))
            result[members] = (1 + below).astype(np.float32) / np.float32(1 + len(group))
        return result
