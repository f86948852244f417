"""Our numbers beside the formulas of peers that are not on PyPI, written out in float64 and loops.

The peers are OpenOOD, OE, energy_ood, DivOE, MixOE and margin_ood, the MaCS paper's code. Their formulas are compared;
none of their code is here.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from macs import losses
from macs.metrics import ood_metrics


def points(positive: list[float], negative: list[float]) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Recall, false positive rate and precision at each threshold that occurs, the lowest first; lower is positive."""
    found = []
    for threshold in sorted({*positive, *negative}):
        caught, flagged = (sum(value <= threshold for value in side) for side in (positive, negative))
        found.append(
            (Fraction(caught, len(positive)), Fraction(flagged, len(negative)), Fraction(caught, caught + flagged))
        )
    return found


def fpr95_first(positive: list[float], negative: list[float]) -> Fraction:
    """OpenOOD 1.5 and pytorch-ood: at the first threshold that catches 95%."""
    return next(rate for recall, rate, _ in points(positive, negative) if recall >= Fraction(95, 100))


def fpr95_nearest(positive: list[float], negative: list[float]) -> Fraction:
    """OE, energy_ood, DivOE and margin_ood: at the threshold whose recall is nearest 95%."""
    return min(points(positive, negative), key=lambda point: abs(point[0] - Fraction(95, 100)))[1]


def trapezoid(positive: list[float], negative: list[float]) -> Fraction:
    """OpenOOD and pytorch-ood: straight lines between the points of recall and precision, from (0, 1)."""
    recall, precision, area = Fraction(0), Fraction(1), Fraction(0)
    for next_recall, _, next_precision in points(positive, negative):
        area += (next_recall - recall) * (precision + next_precision) / 2
        recall, precision = next_recall, next_precision
    return area


def turned(values: list[float]) -> list[float]:
    return [-value for value in values]


# 20 ID images at 10, 11, ... 29, and 20 OOD images at 0, 2, ... 38. To catch 19 OOD images one flags all up to 36, and
# so every ID image; to keep 19 ID images one accepts all from 11, and so the 14 OOD images from 12.
KNOWN, UNKNOWN = [float(v) for v in range(10, 30)], [float(v) for v in range(0, 40, 2)]


def test_the_two_fpr95_are_different_numbers() -> None:
    found = ood_metrics(KNOWN, UNKNOWN)
    assert found.fpr95 == 1 == fpr95_first(UNKNOWN, KNOWN)  # OpenOOD, pytorch-ood
    assert found.fpr95_id == 14 / 20 == float(fpr95_first(turned(KNOWN), turned(UNKNOWN)))  # energy_ood, DivOE


def test_the_nearest_threshold_may_catch_less_than_95_percent() -> None:
    # Of 16 ID images 15 are 93.75%, nearer to 95% than all 16. From 11 on there are 14 OOD images, from 10 on 15.
    found = ood_metrics(KNOWN[:16], UNKNOWN, fpr_rule="nearest")
    assert found.fpr95_id == 14 / 20 == float(fpr95_nearest(turned(KNOWN[:16]), turned(UNKNOWN)))
    assert ood_metrics(KNOWN[:16], UNKNOWN).fpr95_id == 15 / 20


def test_aupr_by_the_trapezoidal_rule() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        known, unknown = (random.integers(0, 12, n).astype(float).tolist() for n in random.integers(1, 30, 2))
        found = ood_metrics(known, unknown)
        assert found.aupr_trapezoid == pytest.approx(float(trapezoid(unknown, known)), abs=1e-14)
        assert found.aupr_trapezoid_id == pytest.approx(float(trapezoid(turned(known), turned(unknown))), abs=1e-14)
        assert found.fpr95 == float(fpr95_first(unknown, known))


RANDOM = np.random.default_rng(0)
CLASSES = 4
LOGITS_IN, LOGITS_OUT = 6 * RANDOM.normal(size=(5, CLASSES)), 6 * RANDOM.normal(size=(7, CLASSES))
LABELS = [0, 3, 1, 1, 2]


def log_sum_exp(logits: np.ndarray) -> float:
    return math.log(sum(math.exp(z) for z in logits))


def log_softmax(logits: np.ndarray) -> list[float]:
    return [z - log_sum_exp(logits) for z in logits]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_outlier_exposure() -> None:
    """OE, energy_ood, DivOE: minus (mean logit - log-sum-exp). OpenOOD: cross-entropy to the uniform distribution."""
    found = losses.outlier_exposure(torch.tensor(LOGITS_OUT)).item()
    assert found == pytest.approx(mean([log_sum_exp(z) - mean(list(z)) for z in LOGITS_OUT]), rel=1e-13)
    assert found == pytest.approx(mean([-sum(log_softmax(z)) / CLASSES for z in LOGITS_OUT]), rel=1e-13)


def test_the_energy_term() -> None:
    """energy_ood: 0.1 times the mean squared hinge of ID images plus that of outliers."""
    inside = mean([max(0, -log_sum_exp(z) + 9) ** 2 for z in LOGITS_IN])
    outside = mean([max(0, -5 + log_sum_exp(z)) ** 2 for z in LOGITS_OUT])
    assert min(inside, outside) > 0
    found = losses.energy_margin(torch.tensor(LOGITS_IN), torch.tensor(LOGITS_OUT), -9, -5).item()
    assert found == pytest.approx(inside + outside, rel=1e-13)


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_the_soft_target_of_mixoe(lam: float) -> None:
    """MixOE: cross-entropy of mixed images to lam * onehot(y) + (1 - lam) / K."""
    targets = [[lam * (k == label) + (1 - lam) / CLASSES for k in range(CLASSES)] for label in LABELS]
    expected = mean(
        [
            -sum(t * p for t, p in zip(target, log_softmax(z), strict=True))
            for target, z in zip(targets, LOGITS_IN, strict=True)
        ]
    )
    mixed, labels = torch.tensor(LOGITS_IN), torch.tensor(LABELS)
    found = lam * cross_entropy(mixed, labels) + (1 - lam) * losses.outlier_exposure(mixed)
    assert found.item() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("margin", [0.01, 0.9])
def test_the_penalty_of_margin_ood(margin: float) -> None:
    """margin_ood, the MaCS paper's code: max(0, m - mean over all pairs of max(0, a_i - b_j)^2)."""
    conf_in, conf_out = ([math.exp(max(log_softmax(z))) for z in logits] for logits in (LOGITS_IN, LOGITS_OUT))
    gaps = mean([max(0, a - b) ** 2 for a in conf_in for b in conf_out])
    assert gaps > 0.01
    ours_in, ours_out = (losses.confidence(torch.tensor(logits)) for logits in (LOGITS_IN, LOGITS_OUT))
    assert losses.macs_penalty(ours_in, ours_out, margin).item() == pytest.approx(max(0, margin - gaps), rel=1e-12)
