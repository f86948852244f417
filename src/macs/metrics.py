"""From confidences to AUROC, AUPR and FPR95, under both conventions of the field.

A confidence is higher for ID. What each number means, as shares between 0 and 1:

    auroc      probability that an ID image has the higher confidence of an ID and an OOD image; a tie counts one half.
               The same whichever class is positive.
    aupr       average precision with OOD as positive, the paper's convention: images are flagged from the lowest
               confidence up; mean over OOD images of the precision at the threshold which flags that image.
               As scikit-learn's `average_precision_score`, no interpolation.
    fpr95      OOD positive, the paper's convention: share of ID images flagged when 95% of OOD images are caught.
    aupr_id    average precision with ID as positive: images are accepted from the highest confidence down.
    fpr95_id   ID positive: share of OOD images accepted when 95% of ID images are kept.
    aupr_trapezoid, aupr_trapezoid_id
               as aupr and aupr_id, but by the trapezoidal rule between all thresholds, as scikit-learn's
               `auc(recall, precision)` of its `precision_recall_curve`. Between two thresholds it assumes precisions
               that no threshold reaches; where confidences seldom tie, the two differ little.

Which of them to compare with whose numbers:

    the MaCS paper, OE              aupr and fpr95, by the rule `nearest`
    OpenOOD 1.5, pytorch-ood        fpr95 is their FPR95, aupr_trapezoid their AUPR with OOD as positive (AUPR-OUT) and
                                    aupr_trapezoid_id that with ID as positive (AUPR-IN); some OpenOOD versions swap
                                    the two names
    energy_ood, DivOE               aupr_id and fpr95_id, by the rule `nearest`
    MixOE                           its TNR95 is 1 - fpr95_id, by the rule `nearest`

Thresholds lie at the confidences that occur, and images of equal confidence are flagged or accepted together. Recall
grows in jumps and rarely hits 95% exactly. `fpr_rule` says which threshold counts:

    first      the first with recall >= 0.95, the field's usual rule and the default.
    nearest    the one with recall nearest 0.95, as in the paper's released code. Of two equally near, the higher recall
               (that code leaves it to rounding); of several with that recall, the one with the most false positives,
               unless all positives are caught.

AUPR depends on the ratio of ID to OOD images (its chance level is the share of positives); AUROC and FPR95 do not.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from macs.core.errors import MacsError

FprRule = Literal["first", "nearest"]
Array = np.ndarray[Any, np.dtype[Any]]

MOST_TRIALS = 10_000

# Thresholds looked up at once: such a block and its stretch of the other side stay in the processor's cache.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class OODMetrics:
    """Shares in [0, 1]; OOD is positive, except in the `_id` fields. The module's docstring defines each."""

    auroc: float
    aupr: float
    fpr95: float
    aupr_id: float
    fpr95_id: float
    aupr_trapezoid: float
    aupr_trapezoid_id: float


METRICS = tuple(field.name for field in fields(OODMetrics))


def ood_metrics(conf_in: Any, conf_out: Any, fpr_rule: FprRule = "first") -> OODMetrics:
    """All metrics of the confidences of ID and OOD images: arrays, lists, or torch tensors of any type or device.

    Exact with ties. Each side is sorted once; time is O(n log n), memory a few arrays of n numbers.
    """
    if fpr_rule not in ("first", "nearest"):
        raise MacsError(f"There is no FPR95 rule called {fpr_rule!r}; use 'first' or 'nearest'.")
    high_in, low_out = _ascending(conf_in, "ID"), _ascending(conf_out, "OOD")
    _refuse_labels(high_in, low_out)
    common = np.result_type(high_in, low_out)
    high_in, low_out = high_in.astype(common, copy=False), low_out.astype(common, copy=False)
    auroc, aupr, trapezoid = _areas(low_out, high_in)
    # With the sign of all confidences turned, ID images are the low ones.
    low_in, high_out = -high_in[::-1], -low_out[::-1]
    _, aupr_id, trapezoid_id = _areas(low_in, high_out)
    return OODMetrics(
        auroc=auroc,
        aupr=aupr,
        fpr95=_fpr95(low_out, high_in, fpr_rule),
        aupr_id=aupr_id,
        fpr95_id=_fpr95(low_in, high_out, fpr_rule),
        aupr_trapezoid=trapezoid,
        aupr_trapezoid_id=trapezoid_id,
    )


def drawn_metrics(
    conf_in: Any, conf_out: Any, share: float = 0.2, trials: int = 10, seed: int = 0, fpr_rule: FprRule = "first"
) -> list[OODMetrics]:
    """The paper's protocol: metrics of random draws, a share of the ID images against as many OOD images.

    Each draw takes n = share * N_in (rounded down, at least 1) ID and min(n, N_out) OOD confidences, none twice. Draw t
    depends on seed, t and the sizes of the sets alone, so that networks and scores are compared on the same images. The
    spread over draws is that of the choice of test images; it says nothing about another training run.
    """
    check_draws(share, trials, seed)
    conf_in, conf_out = _as_array(conf_in, "ID"), _as_array(conf_out, "OOD")
    n = max(1, int(share * len(conf_in)))
    draws = []
    for trial in range(trials):
        random = np.random.default_rng((seed, trial))
        drawn_in = random.choice(conf_in, n, replace=False, shuffle=False)
        drawn_out = random.choice(conf_out, min(n, len(conf_out)), replace=False, shuffle=False)
        draws.append(ood_metrics(drawn_in, drawn_out, fpr_rule))
    return draws


def check_draws(share: float, trials: int, seed: int, fewest: int = 1) -> None:
    """Refuse what no protocol can draw; whoever does slow work first calls it before that."""
    if not 0 < share <= 1:
        raise MacsError(f"The share of the ID test set in a draw must be above 0 and at most 1, not {share}.")
    if not fewest <= trials <= MOST_TRIALS:
        raise MacsError(f"The number of trials must be from {fewest} to {MOST_TRIALS:,}, not {trials}.")
    if seed < 0:
        raise MacsError(f"The seed must not be negative, but is {seed}.")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard error s / sqrt(n), with s of n - 1 degrees of freedom; one value alone has the error nan."""
    if len(values) == 0:
        raise MacsError("There are no values to take the mean of; run at least one trial.")
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(np.mean(values)), error


def _as_array(confidences: Any, side: str) -> Array:
    """One axis of floating-point numbers, at least one of them."""
    if hasattr(confidences, "detach"):  # a torch tensor, without importing torch; numpy knows no bfloat16
        confidences = confidences.detach().cpu()
        if confidences.is_floating_point() and confidences.element_size() < 4:
            confidences = confidences.float()
    array = np.asarray(confidences)
    if array.ndim != 1 or not len(array):
        raise MacsError(f"The {side} confidences have the shape {array.shape}; give one number for at least one image.")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _ascending(confidences: Any, side: str) -> Array:
    ascending = np.sort(_as_array(confidences, side))
    if not (np.isfinite(ascending[0]) and np.isfinite(ascending[-1])):  # nan is sorted to the end
        raise MacsError(f"Some {side} confidences are infinite or not numbers; look for the images that cause them.")
    return ascending


def _refuse_labels(ascending_in: Array, ascending_out: Array) -> None:
    """Scores and labels, as scikit-learn takes them, are not the confidences of two sets of images."""
    binary = [_is_binary(side) for side in (ascending_in, ascending_out)]
    if len(ascending_in) == len(ascending_out) and binary[0] != binary[1]:
        which = "first" if binary[0] else "second"
        raise MacsError(
            f"The {which} argument holds labels, not confidences; call ood_metrics(confidences[is_id], "
            "confidences[~is_id]), with the confidences of ID images first and higher ones for ID."
        )


def _is_binary(ascending: Array) -> bool:
    """Whether both of two labels occur, 0 and 1 or -1 and 1, and nothing else. A saturated softmax gives 1 alone."""
    low, high = ascending[0], ascending[-1]
    return (
        low in (-1, 0)
        and high == 1
        and bool(np.searchsorted(ascending, low, "right") == np.searchsorted(ascending, high))
    )


def _areas(low: Array, high: Array) -> tuple[float, float, float]:
    """AUROC, AUPR and AUPR by the trapezoidal rule with `low` as the positive class, from ascending arrays.

    AUROC = P(low < high) + P(low = high) / 2
    AUPR  = mean over low of P,  P = TP / (TP + FP),  TP, FP = number of low, high <= that low
    By the trapezoidal rule P becomes the mean of P and of the precision just before: with those < that low. Before
    anything is flagged it is 1.
    """
    ends = np.append(np.flatnonzero(low[1:] != low[:-1]) + 1, len(low))  # after each run of equal values
    precisions, not_above = 0.0, 0
    before = 0.0 if high[0] < low[0] else float(ends[0])
    for start in range(0, len(ends), _BLOCK):
        true_positives = ends[start : start + _BLOCK]
        ties = np.diff(true_positives, prepend=ends[start - 1] if start else 0)
        thresholds = low[true_positives - 1]
        begin, end = np.searchsorted(high, thresholds[0], "left"), np.searchsorted(high, thresholds[-1], "right")
        below = begin + np.searchsorted(high[begin:end], thresholds, "left")
        false_positives = begin + np.searchsorted(high[begin:end], thresholds, "right")
        caught = true_positives - ties
        precisions += float(ties @ (true_positives / (true_positives + false_positives)))
        before += float(ties @ (caught / np.maximum(caught + below, 1)))
        not_above += int(ties @ (below + false_positives))
    # Twice the number of pairs in order, ties as one half, is an integer: nothing is rounded before the division.
    pairs = len(low) * len(high)
    return (2 * pairs - not_above) / (2 * pairs), precisions / len(low), (precisions + before) / (2 * len(low))


def _fpr95(low: Array, high: Array, rule: FprRule) -> float:
    """Share of `high` at or below the threshold that catches 95% of `low`, decided in integers: 0.95 is no float."""
    n = len(low)
    threshold = low[(95 * n + 99) // 100 - 1]
    if rule == "nearest":
        fewer, more = (int(np.searchsorted(low, threshold, side)) for side in ("left", "right"))
        caught = more if 100 * more - 95 * n <= 95 * n - 100 * fewer else fewer
        if caught < n:
            return int(np.searchsorted(high, low[caught], "left")) / len(high)
    return int(np.searchsorted(high, threshold, "right")) / len(high)
