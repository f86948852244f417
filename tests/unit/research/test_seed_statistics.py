"""Statistics over seeds, against scipy's own tests and numbers worked out by hand."""

import math

import pytest
from scipy import stats

from macs.research.seed_statistics import estimate, paired_difference, rank_agreement

OURS, THEIRS = {0: 0.21, 1: 0.24, 2: 0.20, 5: 0.9}, {0: 0.26, 1: 0.27, 2: 0.27, 7: 0.1}


def test_an_estimate_is_the_mean_with_its_standard_error() -> None:
    found = estimate([0.2, 0.4, 0.6])
    assert found.mean == pytest.approx(0.4)
    assert found.error == pytest.approx(0.2 / math.sqrt(3))  # the deviation of 0.2, 0.4, 0.6 is 0.2
    assert math.isnan(estimate([0.3]).error)


def test_a_paired_difference_uses_the_shared_seeds_and_students_interval() -> None:
    found = paired_difference(OURS, THEIRS)
    test = stats.ttest_rel([0.21, 0.24, 0.20], [0.26, 0.27, 0.27])
    low, high = test.confidence_interval(0.95)
    assert found.pairs == 3
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx((low, high))
    assert found.significant == (test.pvalue < 0.05)


def test_what_two_seeds_cannot_show_is_not_significant() -> None:
    found = paired_difference({0: 0.10, 1: 0.20}, {0: 0.20, 1: 0.25})
    assert found.mean == pytest.approx(-0.075)
    assert found.half_width == pytest.approx(12.706 * 0.025, rel=1e-4)  # t(0.975, 1) times the error
    assert not found.significant


def test_one_seed_has_a_difference_without_an_interval() -> None:
    found = paired_difference({3: 0.1}, {3: 0.4})
    assert found.mean == pytest.approx(-0.3) and math.isnan(found.half_width) and not found.significant
    assert paired_difference({0: 0.1}, {1: 0.1}) is None


def test_rank_agreement_is_kendalls_tau() -> None:
    # Of the three pairs of rows, "b" orders two as "a" does and one the other way round: (2 - 1) / 3.
    found = rank_agreement({"a": [1, 2, 3], "b": [1, 3, 2], "c": [3, 2, 1]})
    assert found == {("a", "b"): pytest.approx(1 / 3), ("a", "c"): pytest.approx(-1), ("b", "c"): pytest.approx(-1 / 3)}
