"""Conformal p-values: their definition by brute force, and what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from macs.detector.p_values import MOST, PValues
from macs.predictions import Predictions


def answers(confidences: object, predictions: object = None) -> Predictions:
    values = np.asarray(confidences, np.float32)
    labels = np.zeros(len(values), np.int64) if predictions is None else np.asarray(predictions, np.int64)
    return Predictions(labels, values)


Values = st.lists(st.floats(-5, 5, width=16), min_size=1, max_size=30)


@given(Values, Values)
def test_the_definition(calibration: list[float], new: list[float]) -> None:
    reference = PValues.of(answers(calibration), classes=1, per_class=False)
    expected = [(1 + sum(c <= x for c in calibration)) / (len(calibration) + 1) for x in new]
    np.testing.assert_allclose(reference(answers(new)), expected, rtol=1e-6)


@given(st.lists(st.tuples(st.floats(-5, 5, width=16), st.integers(0, 2)), min_size=1, max_size=40), Values)
def test_per_class_an_image_ranks_among_those_predicted_as_its_class(
    calibration: list[tuple[float, int]], new: list[float]
) -> None:
    values, labels = zip(*calibration, strict=True)
    reference = PValues.of(answers(values, labels), classes=3, per_class=True)
    assert reference.sizes == tuple(labels.count(k) for k in range(3))
    predicted = np.arange(len(new)) % 3
    expected = [
        (1 + sum(c <= x and k == mine for c, k in calibration)) / (1 + labels.count(mine))
        for x, mine in zip(new, predicted, strict=True)
    ]
    np.testing.assert_allclose(reference(answers(new, predicted)), expected, rtol=1e-6)


def test_a_confidence_that_is_not_a_number_ranks_below_all() -> None:
    reference = PValues.of(answers([1, 2, 3]), classes=1, per_class=False)
    assert reference(answers([np.nan, -np.inf, np.inf])).tolist() == [0.25, 0.25, 1.0]


def test_no_more_than_the_limit_are_kept_and_they_are_a_fair_sample() -> None:
    random = np.random.default_rng(0)
    many = random.normal(size=3 * MOST).astype(np.float32)
    reference = PValues.of(answers(many), classes=1, per_class=False)
    assert reference.sizes == (MOST,) and reference.confidences.dtype == np.float32
    assert np.isin(reference.confidences, many).all() and (np.diff(reference.confidences) >= 0).all()
    assert stats.kstest(reference.confidences, "norm").pvalue > 0.01


@pytest.mark.parametrize("per_class", [False, True])
def test_p_values_of_new_id_images_are_uniform(per_class: bool) -> None:
    """Over many calibration sets; within each predicted class too, where ranks are counted there."""
    random = np.random.default_rng(1)
    p_values = []
    for _ in range(2000):
        confidences, labels = random.normal(size=60), random.integers(0, 2, 60)
        confidences += 3 * labels  # the classes differ
        reference = PValues.of(answers(confidences[:-1], labels[:-1]), classes=2, per_class=per_class)
        p_values.append(float(reference(answers(confidences[-1:], labels[-1:]))[0]))
    for level in (0.1, 0.2, 0.5):
        assert np.mean(np.array(p_values) <= level) < level + 3 * np.sqrt(level * (1 - level) / 2000)
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.05)
