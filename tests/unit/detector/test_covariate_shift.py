"""Weighted conformal p-values: their definition by brute force, and what they promise under a simulated shift."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from macs import MacsError
from macs.detector import LikelihoodRatio, effective_size, weighted_p_values
from macs.detector.calibration import PValues
from macs.predictions import Predictions

LEVELS = np.array([0.05, 0.1, 0.25, 0.5])
Pairs = st.lists(st.tuples(st.floats(-3, 3, width=16), st.floats(0.125, 8, width=16)), min_size=1, max_size=30)


@given(Pairs, Pairs)
def test_the_definition(known: list[tuple[float, float]], new: list[tuple[float, float]]) -> None:
    expected = [(w + sum(v for c, v in known if c <= x)) / (w + sum(v for _, v in known)) for x, w in new]
    values = weighted_p_values(*zip(*known, strict=True), *zip(*new, strict=True))
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_equal_weights_give_the_usual_p_values() -> None:
    random = np.random.default_rng(0)
    known, new = random.normal(size=80).astype(np.float32), random.normal(size=40).astype(np.float32)
    new[0] = np.nan
    usual = PValues.of(Predictions(np.zeros(80, np.int64), known), 1, per_class=False)
    values = weighted_p_values(known, np.full(80, 7.0), new, np.full(40, 7.0))
    np.testing.assert_allclose(values, usual(Predictions(np.zeros(40, np.int64), new)), rtol=1e-6)


def p_values_under_shift(
    shift: float, weigh: Callable[[np.ndarray], np.ndarray], rounds: int = 3000, size: int = 50
) -> np.ndarray:
    """P = N(0, 1), Q = N(shift, 1), confidence -x: after the shift, known inputs look less known."""
    random = np.random.default_rng(1)
    known, new = random.normal(0, 1, (rounds, size)), random.normal(shift, 1, rounds)
    values = [weighted_p_values(-a, weigh(a), [-b], weigh(np.array([b]))) for a, b in zip(known, new, strict=True)]
    return np.concatenate(values)


def test_under_a_shift_the_weights_restore_what_it_broke() -> None:
    """The share of shifted known inputs with p <= a is at most a with the weights, and far above it without."""
    tolerance = 3 * np.sqrt(LEVELS * (1 - LEVELS) / 3000)
    weighted = p_values_under_shift(0.75, lambda x: np.exp(0.75 * x))
    shares = (weighted[:, None] <= LEVELS).mean(0)
    assert (shares <= LEVELS + tolerance).all()
    assert shares[-1] > 0.4  # near a, not merely below it
    plain = p_values_under_shift(0.75, np.ones_like)
    assert ((plain[:, None] <= LEVELS).mean(0) > LEVELS + 0.08).all()


def test_estimated_weights_do_nearly_as_well() -> None:
    random = np.random.default_rng(2)
    ratio = LikelihoodRatio.between(random.normal(0, 1, (2000, 1)), random.normal(0.75, 1, (2000, 1)))
    estimated = p_values_under_shift(0.75, lambda x: ratio(x[:, None]))
    shares = (estimated[:, None] <= LEVELS).mean(0)
    assert (shares <= LEVELS + 3 * np.sqrt(LEVELS * (1 - LEVELS) / 3000) + 0.02).all()


def test_the_ratio_is_a_logistic_regression() -> None:
    random = np.random.default_rng(3)
    before, after = random.normal(0, 1, (300, 3)), random.normal([0.5, -1, 0], [1, 1, 2], (200, 3))
    rows, is_after = np.concatenate([before, after]), np.repeat([0, 1], [300, 200])
    standard = (rows - rows.mean(0)) / rows.std(0)
    regression = LogisticRegression(C=1 / (1e-3 * len(rows)), tol=1e-10, max_iter=1000).fit(standard, is_after)
    ratio = LikelihoodRatio.between(before, after)
    np.testing.assert_allclose(np.log(ratio(rows)), regression.decision_function(standard), atol=1e-5)


def test_separable_times_give_finite_weights() -> None:
    ratio = LikelihoodRatio.between([[0.0, 1.0], [1.0, 1.0]], [[10.0, 1.0], [11.0, 1.0]])  # a constant column, too
    weights = ratio([[-1e9, 1], [1e9, 1]])
    assert np.isfinite(weights).all() and weights[0] < weights[1]


def test_the_effective_size_of_equal_weights_is_their_number() -> None:
    assert effective_size(np.full(30, 0.2)) == pytest.approx(30)
    assert effective_size([1, 1, 0, 0]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["a"], [1], [1], [1]), "The calibration confidences must be an array of numbers"),
        (([1], [[1], [1, 2]], [1], [1]), "The calibration weights must be an array of numbers"),
        (([1, 2], [1], [1], [1]), "2 calibration confidences but weights of shape"),
        (([1, 2], [1, -1], [1], [1]), "calibration weights are negative"),
        (([1, 2], [0, 0], [1], [1]), "All calibration weights are 0"),
        (([1, np.nan], [1, 1], [1], [1]), "Some calibration confidences are not numbers"),
        (([1, 2], [1, 1], [1], [np.inf]), "new weights are negative or not finite"),
        (([[1, 2]], [[1, 1]], [1], [1]), "one number per input"),
    ],
)
def test_wrong_values_are_named(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(MacsError, match=message):
        weighted_p_values(*arguments)


def test_a_ratio_refuses_other_columns_and_missing_values() -> None:
    ratio = LikelihoodRatio.between(np.eye(3), 2 * np.eye(3))
    with pytest.raises(MacsError, match="estimated on 3 columns, but these inputs have 2"):
        ratio([[1, 2]])
    with pytest.raises(MacsError, match="inputs before must be one array of numbers, but its rows differ"):
        LikelihoodRatio.between([[1, 2], [3]], [[1, 2]])
    with pytest.raises(MacsError, match="before have 3 columns, but those after have 2"):
        LikelihoodRatio.between(np.eye(3), np.eye(2))
    with pytest.raises(MacsError, match="not finite"):
        ratio([[1, 2, np.nan]])
