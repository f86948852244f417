"""The drift test against its definition, by brute force, and its guarantee, by simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, kstest, norm

from macs.core.errors import MacsError
from macs.serve.drift import LOWEST, RATE, SHARES, DriftTest

Numbers = NDArray[np.float64]


def p_values(calibration: Numbers, stream: Numbers) -> Numbers:
    return np.array([(1 + np.sum(calibration <= c)) / (1 + len(calibration)) for c in stream])


def bets(share: float, lowest: float, ranks: Numbers) -> Numbers:
    return 1 - share + np.where(ranks <= lowest, share / lowest, 0)


def evidence_of(ranks: Numbers, rate: float) -> float:
    """Bets from every starting time on, each a product, summed without a recursion."""
    total = 0.0
    for share in SHARES:
        for lowest in LOWEST:
            factors = bets(share, lowest, ranks)
            total += sum(float(np.prod(factors[start:])) for start in range(len(ranks)))
    return rate * total / (len(SHARES) * len(LOWEST))


@pytest.mark.parametrize("digits", [16, 1])  # with one digit, most confidences are ties
def test_evidence_is_that_of_ranks_among_calibration_and_earlier_images(digits: int) -> None:
    random = np.random.default_rng(0)
    calibration, stream = random.random(30).round(digits), random.random(150).round(digits)
    p = p_values(calibration, stream)
    chance = np.random.default_rng(7)
    ranks = []
    for t, c in enumerate(stream):
        sure, equal = np.sum(calibration <= c) + np.sum(p[:t] < p[t]), np.sum(p[:t] == p[t])
        ranks.append((sure + chance.random() * (1 + equal)) / (31 + t))
    test = DriftTest(30, false_alarm_rate=1e-9, seed=7)
    test.update(p.astype(np.float32))
    assert test.evidence == pytest.approx(evidence_of(np.array(ranks), 1e-9))
    assert (test.images, test.alarm) == (150, False)


def test_however_the_stream_is_cut_into_batches_the_evidence_is_the_same() -> None:
    random = np.random.default_rng(1)
    p = random.integers(1, 102, 500) / 101
    whole, pieces = DriftTest(100), DriftTest(100)
    whole.update(p)
    for piece in np.split(p, np.sort(random.integers(0, 500, 40))):
        pieces.update(piece)
    assert pieces.state() == pytest.approx(whole.state())


def test_per_class_each_image_ranks_among_those_of_its_class() -> None:
    random = np.random.default_rng(2)
    sizes, labels = [20, 50, 35], random.integers(0, 3, 200)
    p = np.array([random.integers(1, sizes[label] + 2) / (sizes[label] + 1) for label in labels])
    chance = np.random.default_rng(0)
    ranks = []
    for t, label in enumerate(labels):
        earlier = p[:t][labels[:t] == label]
        sure = p[t] * (sizes[label] + 1) - 1 + np.sum(earlier < p[t])
        ranks.append((sure + chance.random() * (1 + np.sum(earlier == p[t]))) / (sizes[label] + 1 + len(earlier)))
    test = DriftTest(sizes)
    test.update(p, labels)
    assert test.evidence == pytest.approx(evidence_of(np.array(ranks), RATE))


def test_ranks_of_id_images_are_uniform_and_independent() -> None:
    class Recording(DriftTest):
        def _bet(self, ranks: Numbers) -> None:
            found.extend(ranks)

    found: list[float] = []
    for seed in range(200):  # 20 calibration images and 20 more: ranks among the former alone would be far from it
        random = np.random.default_rng(seed)
        Recording(20, seed=seed).update(p_values(random.random(20), random.random(20)))
    ranks = np.array(found).reshape(200, 20)
    assert kstest(ranks.ravel(), "uniform").pvalue > 0.01
    assert abs(np.corrcoef(ranks.T)[np.triu_indices(20, 1)].mean()) < 3 / (200 * 190) ** 0.5
    assert kstest(ranks.mean(axis=1), norm(0.5, (1 / 12 / 20) ** 0.5).cdf).pvalue > 0.01


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("lowest", LOWEST)
def test_a_bet_is_fair_and_never_rises_with_the_rank(share: float, lowest: float) -> None:
    values = bets(share, lowest, (np.arange(10_000) + 0.5) / 10_000)
    assert values.mean() == pytest.approx(1) and (np.diff(values) <= 0).all() and values.min() > 0


class Naive(DriftTest):
    """Takes p-values for independent ranks, which they are not, since they share a calibration set."""

    def _ranks(self, below: NDArray[np.int64], groups: NDArray[np.int64]) -> Numbers:
        return (1 + below) / (1 + self._sizes[0])


def false_alarms(kind: type[DriftTest], rate: float, length: int, digits: int = 16) -> int:
    """In how many of 300 streams of ID images the alarm is raised, each with 100 calibration images of its own."""
    alarms = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        calibration, stream = random.random(100).round(digits), random.random(length).round(digits)
        test = kind(100, false_alarm_rate=rate)
        test.update((1 + np.searchsorted(np.sort(calibration), stream, side="right")) / 101)
        alarms += test.alarm
    return alarms


def test_false_alarms_are_as_rare_as_stated_though_all_p_values_share_one_calibration_set() -> None:
    length, rate = 2_000, 1e-4
    most = binom(300, rate * length).ppf(0.999)  # of 300, if the bound were attained
    assert 0 < false_alarms(DriftTest, rate, length) <= most
    assert false_alarms(DriftTest, rate, length, digits=1) <= most  # ties
    assert false_alarms(Naive, rate, length) > most


def test_the_mean_evidence_of_id_images_grows_no_faster_than_the_rate() -> None:
    random = np.random.default_rng(3)
    found = []
    for _ in range(2_000):
        calibration = np.sort(random.random(1_000))
        test = DriftTest(1_000, false_alarm_rate=1e-6)
        test.update((1 + np.searchsorted(calibration, random.random(10))) / 1_001)
        found.append(test.evidence)
    error = np.std(found) / len(found) ** 0.5
    assert 0.8 * 1e-5 < np.mean(found) < 1e-5 + 3 * error


@pytest.mark.parametrize("before", [0, 3_000])
def test_an_alarm_comes_soon_after_a_tenth_of_the_images_is_ood_and_stays(before: int) -> None:
    random = np.random.default_rng(4)
    calibration = np.sort(random.random(2_000))
    known, unknown = random.random(before + 3_000), random.random(before + 3_000) ** 4
    is_ood = (random.random(before + 3_000) < 0.1) & (np.arange(before + 3_000) >= before)
    stream = np.where(is_ood, unknown / 5, known)
    test = DriftTest(2_000)
    test.update((1 + np.searchsorted(calibration, stream)) / 2_001)
    assert test.alarm and before < test.alarm_after < before + 2_000
    state = test.state()
    test.update(np.ones(500))
    assert test.alarm and test.state() == {**state, "images": before + 3_500}


@pytest.mark.parametrize("rate", [0, 1, -1e-6, float("nan"), "often"])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(MacsError, match="false-alarm rate"):
        DriftTest(100, false_alarm_rate=rate)


@pytest.mark.parametrize("sizes", [0, [], [0, 0], [5, -1]])
def test_without_calibration_confidences_there_is_no_test(sizes: int | list[int]) -> None:
    with pytest.raises(MacsError, match="calibrate it again"):
        DriftTest(sizes)


@pytest.mark.parametrize("p", [0.0, -0.1, 1.01, 0.5, float("nan"), float("inf")])
def test_p_values_of_another_detector_are_refused_and_change_nothing(p: float) -> None:
    test = DriftTest(100)
    test.update([1 / 101])
    before = test.state()
    with pytest.raises(MacsError, match="not p-values among 100"):
        test.update([1 / 101, p])
    assert test.state() == before


@pytest.mark.parametrize("labels", [None, [0], [0, 3], [-1, 0]])
def test_per_class_every_p_value_needs_its_class(labels: list[int] | None) -> None:
    with pytest.raises(MacsError, match="class"):
        DriftTest([1, 1, 1]).update([0.5, 1], labels)
