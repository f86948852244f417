"""Risk against coverage: by hand, by brute force over the orders of ties, and in what evaluate prints."""

import json
from itertools import permutations

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.evaluation import measure
from macs.evaluation.tables import plain_text
from macs.metrics import risk_coverage


def by_hand(correct: list[bool], confidences: list[float]) -> list[float]:
    order = sorted(range(len(correct)), key=lambda i: -confidences[i])
    return [sum(not correct[i] for i in order[:k]) / k for k in range(1, len(order) + 1)]


def test_the_curve_is_the_error_of_the_most_confident() -> None:
    random = np.random.default_rng(0)
    correct, confidences = (random.random(40) < 0.7).tolist(), random.permutation(40).astype(float).tolist()
    curve = risk_coverage(correct, confidences)
    expected = by_hand(correct, confidences)
    assert curve.risk == pytest.approx(expected)
    assert curve.aurc == pytest.approx(sum(expected) / 40)
    assert curve.coverage == pytest.approx([k / 40 for k in range(1, 41)])
    for share, images in ((1, 40), (0.5, 20), (0.9, 36), (0.91, 37), (0.001, 1)):
        assert curve.accuracy_at(share) == pytest.approx(1 - expected[images - 1])


def test_ties_count_with_the_mean_over_their_orders() -> None:
    correct, confidences = [True, False, True, False, False], [0.9, 0.5, 0.5, 0.5, 0.1]
    middle = [by_hand([correct[0], *order, correct[4]], [5, 4, 3, 2, 1]) for order in permutations(correct[1:4])]
    assert risk_coverage(correct, confidences).risk == pytest.approx(np.mean(middle, axis=0))
    constant = risk_coverage([True, False, False, True], [1.0] * 4)
    assert constant.aurc == pytest.approx(0.5)  # a confidence that says nothing


@pytest.mark.parametrize(
    ("correct", "confidences", "words"),
    [
        ([True], [0.1, 0.2], "one confidence per prediction"),
        ([], [], "one confidence"),
        ([True], [np.nan], "not a number"),
    ],
)
def test_what_has_no_curve_is_refused(correct: list[bool], confidences: list[float], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        risk_coverage(correct, confidences)


@pytest.mark.parametrize("coverage", [0, 1.01, -1])
def test_a_coverage_is_a_share(coverage: float) -> None:
    with pytest.raises(MacsError, match="above 0 and at most 1"):
        risk_coverage([True], [0.5]).accuracy_at(coverage)


def test_an_evaluation_says_how_right_the_most_confident_predictions_are() -> None:
    correct, conf = np.array([True] * 8 + [False] * 2), np.linspace(1, 0.1, 10, dtype=np.float32)
    evaluation = measure("id", correct, conf, {"ood": np.zeros(5, np.float32)})
    record = json.loads(json.dumps(evaluation.as_dict()))["selective"]
    assert record["accuracy_at_coverage"] == {"0.95": 0.8, "0.9": pytest.approx(8 / 9), "0.8": 1.0, "0.5": 1.0}
    assert record["aurc"] == pytest.approx((1 / 9 + 2 / 10) / 10)
    assert "95%, 90%, 80%, 50% of the ID images: 80.00%, 88.89%, 100.00%, 100.00%; AURC 3.11%" in plain_text(evaluation)
