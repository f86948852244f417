"""The thresholds of the slider: short decimals, exact counts, and those of FPR95 among them."""

import math

import numpy as np
import pytest

from macs.metrics import ood_metrics
from macs.report.thresholds import choose, shortest

RANDOM = np.random.default_rng(0)
SETS = {
    "overlapping": [RANDOM.beta(5, 1, 333), RANDOM.beta(1, 3, 77), RANDOM.beta(2, 2, 1000)],
    "apart": [RANDOM.uniform(0.9, 1, 50), RANDOM.uniform(0.1, 0.2, 20)],
    "float32 close to one": [1 - RANDOM.exponential(1e-5, 400), 1 - RANDOM.exponential(1e-4, 300)],
    "ties": [np.repeat([0.5, 1.0], [3, 97]), np.repeat([0.25, 1.0], [60, 40])],
    "all equal": [np.ones(5), np.ones(3)],
    "one image": [np.array([0.3]), np.array([0.7])],
    "negative and far": [RANDOM.normal(-40, 3, 200), RANDOM.normal(-1e6, 1e5, 200)],
}
SETS = {name: [each.astype(np.float32) for each in sets] for name, sets in SETS.items()}


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_every_count_is_that_of_a_loop_over_the_images(sets: list[np.ndarray]) -> None:
    chosen = choose(sets)
    assert chosen.values == sorted(set(chosen.values)) and len(chosen.values) <= 1000
    for confidences, kept in zip(sets, chosen.kept, strict=True):
        values = confidences.tolist()
        assert kept == [sum(value >= threshold for value in values) for threshold in chosen.values]
    assert [kept[0] for kept in chosen.kept] == chosen.images == [len(each) for each in sets]


@pytest.mark.parametrize("sets", SETS.values(), ids=SETS.keys())
def test_what_slips_through_at_95_percent_kept_is_fpr95(sets: list[np.ndarray]) -> None:
    chosen = choose(sets)
    start = chosen.keeping(95)
    assert chosen.kept[0][start] >= math.ceil(0.95 * len(sets[0]))
    for confidences, share in zip(sets[1:], chosen.shares[1:, start], strict=True):
        assert share == pytest.approx(ood_metrics(sets[0], confidences).fpr95_id, abs=1e-12)


@pytest.mark.parametrize("percent", [50, 90, 99])
def test_keeping_is_the_highest_and_catching_the_lowest_threshold_that_does(percent: int) -> None:
    chosen = choose(SETS["overlapping"])
    keeping, catching = chosen.keeping(percent), chosen.catching(percent)
    assert chosen.shares[0, keeping] >= percent / 100 > chosen.shares[0, keeping + 1]
    caught = 1 - chosen.shares[1:].mean(axis=0)
    assert caught[catching] >= percent / 100 > caught[catching - 1]


def test_a_threshold_is_the_shortest_decimal_of_its_interval() -> None:
    for _ in range(2000):
        high = float(RANDOM.normal() * 10.0 ** RANDOM.integers(-6, 6))
        low = high - abs(high) * 10.0 ** -float(RANDOM.uniform(0, 9))
        found = shortest(low, high)
        assert low < found <= high
        digits = next(n for n in range(-12, 20) if round(found, n) == found)
        step = 10.0 ** (1 - digits)  # no multiple of a coarser step lies inside
        assert (
            math.floor(high / step * (1 - 1e-15)) * step <= low + abs(high) * 1e-12 or round(high, digits - 1) == high
        )


def test_the_shown_threshold_stays_short() -> None:
    chosen = choose([np.array([0.87345219, 0.9]), np.array([0.8721])])
    assert 0.873 in chosen.values and 0.9 in chosen.values
