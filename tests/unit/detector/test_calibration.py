"""The promise of a threshold, checked on calibrations by the thousand."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from macs.core.errors import MacsError
from macs.core.settings import from_dict
from macs.detector.calibration import (
    MOST,
    Calibration,
    Check,
    PValues,
    Threshold,
    calibrate,
    conformal_threshold,
    images_needed,
    rank,
    thresholds_by_class,
)
from macs.predictions import Predictions

TRIALS = 2000


@pytest.mark.parametrize(("keep", "parts"), [(0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1000), (0.5, 2)])
def test_the_rank_is_computed_in_the_decimals_that_were_written(keep: float, parts: int) -> None:
    """1 - 0.9 is 0.0999... in binary, and ten times that would be rounded down to 0."""
    assert [rank(n, keep) for n in range(3000)] == [(n + 1) // parts for n in range(3000)]


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.75, 0.9, 0.95, 0.97, 0.99])
def test_images_needed_is_the_least_number_with_a_rank(keep: float) -> None:
    assert images_needed(keep) == next(n for n in range(1000) if rank(n, keep) >= 1)


@pytest.mark.parametrize(("n", "keep"), [(19, 0.95), (20, 0.95), (100, 0.9), (7, 0.01), (1, 0.5), (5000, 0.5)])
def test_the_threshold_is_the_kth_smallest_confidence(n: int, keep: float) -> None:
    confidences = np.random.default_rng(n).normal(size=n).astype(np.float32)
    found = conformal_threshold(confidences, keep)
    assert found.value == sorted(confidences.tolist())[found.rank - 1]
    assert found.images == n


@pytest.mark.parametrize(("n", "keep"), [(19, 0.95), (59, 0.9), (200, 0.95), (37, 0.7)])
def test_over_many_calibrations_the_share_kept_has_the_stated_distribution(n: int, keep: float) -> None:
    """With confidences from a known distribution, the share of new images kept is computed and not estimated."""
    drawn = np.random.default_rng(0).normal(size=(TRIALS, n))
    found = [conformal_threshold(row, keep) for row in drawn]
    kept = stats.norm.sf([each.value for each in found])
    k = found[0].rank
    error = kept.std() / TRIALS**0.5
    assert kept.mean() == pytest.approx(1 - k / (n + 1), abs=4 * error)
    assert 1 - k / (n + 1) >= keep
    assert stats.kstest(kept, stats.beta(n + 1 - k, k).cdf).pvalue > 0.001
    low, high = found[0].interval
    assert np.mean((low <= kept) & (kept <= high)) == pytest.approx(0.95, abs=0.02)


def test_ties_keep_more_and_never_less() -> None:
    """Confidences on a coarse grid: half of them tie with the threshold."""
    random = np.random.default_rng(0)
    values, chances = np.arange(5), np.array([0.02, 0.05, 0.4, 0.4, 0.13])
    drawn = random.choice(values, p=chances, size=(TRIALS, 59))
    kept = [chances[values >= conformal_threshold(row, 0.9).value].sum() for row in drawn]
    assert np.mean(kept) > 0.93


def test_within_each_predicted_class_the_promise_holds_where_one_threshold_for_all_breaks_it() -> None:
    """The third class has lower confidences: one threshold for all rejects it far more often."""
    random = np.random.default_rng(0)
    centres = np.array([0.0, 0.5, -2.0])
    predictions = random.integers(0, 3, (TRIALS, 120))
    drawn = random.normal(size=predictions.shape) + centres[predictions]
    each = [thresholds_by_class(row, label, "abc", 0.9) for row, label in zip(drawn, predictions, strict=True)]
    taus = np.array([[one.value for one in found] for found in each])
    kept = stats.norm.sf(taus - centres).mean(axis=0)
    assert (kept > 0.9).all() and (kept < 0.94).all()
    for_all = np.array([conformal_threshold(row, 0.9).value for row in drawn])
    assert stats.norm.sf(for_all - centres[2]).mean() < 0.8
    assert [one.group for one in each[0]] == ["a", "b", "c"]


def test_too_few_images_say_how_many_are_needed() -> None:
    with pytest.raises(MacsError, match="at least 19 calibration images, but there are 18"):
        conformal_threshold(np.zeros(18), 0.95)
    assert conformal_threshold(np.zeros(19), 0.95).rank == 1


def test_classes_with_too_few_images_are_all_named() -> None:
    predictions = np.repeat([0, 1, 2], [3, 9, 8])
    with pytest.raises(MacsError, match=r"at least 9 images .* fewer: cat \(3\), owl \(8\);"):
        thresholds_by_class(np.zeros(20), predictions, ("cat", "dog", "owl"), 0.9)
    with pytest.raises(MacsError, match=r"dog \(0\)"):
        thresholds_by_class(np.zeros(20), np.zeros(20, np.int64), ("cat", "dog"), 0.9)


@pytest.mark.parametrize("keep", [0, 1, -0.1, 1.5, float("nan"), 95])
def test_a_share_is_a_share(keep: float) -> None:
    with pytest.raises(MacsError, match="above 0 and below 1"):
        conformal_threshold(np.zeros(100), keep)


def test_an_infinite_threshold_is_refused() -> None:
    with pytest.raises(MacsError, match="-inf"):
        conformal_threshold(np.full(20, -np.inf), 0.9)


@pytest.mark.parametrize("per_class", [False, True])
def test_a_record_survives_json(per_class: bool) -> None:
    random = np.random.default_rng(0)
    confidences, predictions = random.random(90).astype(np.float32), np.arange(90) % 3
    record = calibrate(
        confidences,
        predictions,
        np.zeros(90, np.int64),
        ("a", "b", "c"),
        keep=0.9,
        per_class=per_class,
        score="msp",
        data="x",
    )
    again = from_dict(Calibration, json.loads(json.dumps(record.as_dict())))
    assert again == record
    assert again.values.dtype == np.float32 and again.values.shape == ((3,) if per_class else ())
    assert record.accuracy == pytest.approx(1 / 3)
    # The value must be the float32 itself: the image that set the threshold has to reach it.
    assert all(np.float32(one.value) in confidences for one in again.thresholds)


def test_the_record_in_words_says_what_is_promised() -> None:
    found = calibrate(
        np.linspace(0, 1, 99, dtype=np.float32),
        np.zeros(99, np.int64),
        None,
        "ab",
        keep=0.95,
        per_class=False,
        score="msp",
        data="photos",
    )
    low, high = stats.beta(95, 5).interval(0.95)
    for words in ("99 images of photos", "n = 99, k = 5", f"{low:.1%} to {high:.1%}", "at least 0.95"):
        assert words in str(found)
    assert "ccuracy" not in str(found)


def test_the_share_counted_on_new_images_lies_in_its_interval_as_often_as_stated() -> None:
    random = np.random.default_rng(5)
    n, m, k = 200, 300, 10
    one = Threshold("", n, k, 0.0, (0.0, 1.0))
    low, high = one.interval_on(m)
    calibration, new = random.random((4000, n)), random.random((4000, m))
    tau = np.sort(calibration, axis=1)[:, k - 1]
    inside = ((share := (new >= tau[:, None]).mean(axis=1)) >= low) & (share <= high)
    assert 0.94 < inside.mean() < 0.98  # at least 95%: a count is a whole number


def record_of(*thresholds: Threshold) -> Calibration:
    return Calibration(0.9, "energy", "photos", sum(one.images for one in thresholds), thresholds)


def test_a_check_counts_what_is_kept_within_each_predicted_class() -> None:
    first, second, third = (Threshold(name, 39, 4, 0.5, (0.8, 0.97)) for name in ("cat", "dog", "owl"))
    predictions = np.array([0, 0, 0, 0, 1, 1])  # nothing is predicted as owl, so that there is nothing to check
    is_kept = np.array([True, True, True, False, False, True])
    checks = record_of(first, second, third).checked(predictions, is_kept).checks
    assert [(one.group, one.images, one.kept) for one in checks] == [("cat", 4, 0.75), ("dog", 2, 0.5)]
    assert [one.expected for one in checks] == [first.interval_on(4), second.interval_on(2)]
    (check,) = record_of(Threshold("", 39, 4, 0.5, (0.8, 0.97))).checked(predictions, is_kept).checks
    assert (check.group, check.images, check.kept) == ("", 6, 4 / 6)


@pytest.mark.parametrize(("images", "n", "k"), [(8, 19, 3), (200, 9, 2)])
def test_the_interval_on_new_images_is_that_of_the_beta_binomial_distribution(images: int, n: int, k: int) -> None:
    """By brute force: the share kept has a density, and the number kept is binomial given the share."""
    shares = (np.arange(20_000) + 0.5) / 20_000
    density = stats.beta(n + 1 - k, k).pdf(shares) / len(shares)
    distribution = np.cumsum([density @ stats.binom(images, shares).pmf(count) for count in range(images + 1)])
    low, high = (int(np.argmax(distribution >= tail)) for tail in (0.025, 0.975))
    assert Threshold("", n, k, 0.0, (0.0, 1.0)).interval_on(images) == (low / images, high / images)


def test_a_check_says_whether_the_share_is_as_expected() -> None:
    words = "Of 1,200 other ID images it keeps {}, {} expected (93.8% to 96.5%)."
    for kept, verdict in ((0.938, "as"), (0.965, "as"), (0.9379, "NOT as"), (0.9651, "NOT as")):
        assert str(Check("", 1200, kept, (0.938, 0.965))) == words.format(f"{kept:.2%}", verdict)
    assert str(Check("cat", 9, 1.0, (0.9, 1.0))) == (
        "Of 9 other images predicted as cat it keeps 100.00%, as expected (90.0% to 100.0%)."
    )


def test_the_record_in_words_is_complete() -> None:
    thresholds = (Threshold("cat", 1039, 104, 0.12345678, (0.88, 0.92)), Threshold("dog", 39, 4, -2.0, (0.8, 0.97)))
    check, new = Check("cat", 9, 1.0, (0.9, 1.0)), "of new ID images, with 95% probability"
    record = replace(record_of(*thresholds), accuracy=0.987, checks=(check,), passing={"noise": 0.125, "sky": 0.5})
    assert str(record).splitlines() == [
        "Calibrated on 1,078 images of photos; an image is ID if its energy reaches",
        f"  cat: 0.123457  (n = 1,039, k = 104: this threshold keeps 88.0% to 92.0% {new})",
        f"  dog: -2  (n = 39, k = 4: this threshold keeps 80.0% to 97.0% {new})",
        "A new ID image is kept with probability at least 0.9 within each predicted class, averaged over calibration "
        "sets.",
        str(check),
        "Accuracy on these images: 98.70%.",
        "Of noise, 12.50% would pass as ID.",
        "Of sky, 50.00% would pass as ID.",
    ]
    one = str(record_of(Threshold("", 39, 4, 0.25, (0.8, 0.97)))).splitlines()
    assert one[1].startswith("  0.25  (n = 39") and "within" not in one[2] and len(one) == 3


def test_a_calibration_records_what_it_was_given() -> None:
    predictions, labels = np.array([0, 1] * 20), np.array([0] * 40)
    confidences = np.linspace(0, 1, 40, dtype=np.float32)

    def found(labels: np.ndarray | None, per_class: bool) -> Calibration:
        told: dict[str, Any] = {"score": "msp", "data": "photos", "ranked": (20, 20)}
        return calibrate(confidences, predictions, labels, "ab", keep=0.9, per_class=per_class, **told)

    record = found(labels, per_class=True)
    assert (record.keep, record.score, record.data, record.images, record.ranked) == (
        0.9,
        "msp",
        "photos",
        40,
        (20, 20),
    )
    assert record.accuracy == 0.5 and found(None, per_class=False).accuracy is None
    # Among 20 confidences per class, the second smallest is the threshold: floor(21 * 0.1) = 2.
    assert [one.value for one in record.thresholds] == [confidences[2], confidences[3]]
    assert record.per_class and not found(None, per_class=False).per_class
    assert found(None, per_class=False).values == confidences[3]  # floor(41 * 0.1) = 4


def test_a_class_with_too_few_images_is_named_in_its_own_sentence() -> None:
    with pytest.raises(
        MacsError, match="^To keep 0.9 of the ID images takes .* images predicted as owl, but there are 3;"
    ):
        conformal_threshold(np.zeros(3), 0.9, "owl")


def test_a_prediction_beyond_the_classes_is_an_error_and_not_left_out() -> None:
    with pytest.raises(ValueError, match="longer than"):
        thresholds_by_class(np.zeros(60), np.repeat([0, 1, 2], 20), ("cat", "dog"), 0.9)


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
