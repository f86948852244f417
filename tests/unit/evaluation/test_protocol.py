"""The draws: their sizes, which images they take, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.evaluation import measure
from macs.evaluation.protocol import Protocol, drawn_accuracies, drawn_metrics
from macs.metrics import ood_metrics


def test_draws_take_a_share_of_id_and_as_many_ood() -> None:
    # Without ties AUPR of a perfectly wrong detector tells the two sizes: mean over k of k / (N_in + k).
    conf_in = np.arange(100)
    for n_out, drawn_out in ((1000, 20), (7, 7)):
        conf_out = 1000 + np.arange(n_out)
        expected = np.mean([k / (20 + k) for k in range(1, drawn_out + 1)])
        draws = drawn_metrics(conf_in, conf_out)
        assert len(draws) == 10
        assert [draw.aupr for draw in draws] == pytest.approx([expected] * 10, rel=1e-12)


def test_draws_differ_from_each_other_and_repeat_with_the_seed() -> None:
    rng = np.random.default_rng(0)
    conf_in, conf_out = rng.normal(1, 1, 500), rng.normal(0, 1, 500)
    draws = drawn_metrics(conf_in, conf_out, Protocol(trials=6))
    assert len(set(draws)) == 6
    assert drawn_metrics(conf_in, conf_out, Protocol(trials=3)) == draws[:3]
    assert drawn_metrics(conf_in, conf_out, Protocol(trials=3, seed=1))[0] not in draws
    # Drawing everything is drawing without replacement only if it gives the full sets back.
    assert set(drawn_metrics(conf_in, conf_out, Protocol(share=1, trials=2))) == {ood_metrics(conf_in, conf_out)}


def test_accuracy_is_that_of_the_images_which_the_metrics_are_measured_on() -> None:
    # Right predictions get the confidence 3, wrong ones 1, OOD images 2: AUROC is the share of right predictions.
    rng = np.random.default_rng(3)
    correct = rng.random(200) < 0.7
    confidences = np.where(correct, 3, 1).astype(np.float32)
    measured = measure("mine", correct, confidences, {"a": np.full(90, 2, np.float32)})
    assert [draw.auroc for draw in measured.sets[0].draws] == measured.draw_accuracies
    assert measured.draw_accuracies == drawn_accuracies(correct, Protocol())
    assert len(set(measured.draw_accuracies)) > 1


def test_a_draw_takes_no_image_twice_and_the_same_id_images_for_every_ood_set() -> None:
    one, other = (Protocol(share=0.5).draw(3, 100, unknown) for unknown in (1000, 7))
    assert one.known.tolist() == other.known.tolist() and len(set(one.known.tolist())) == 50
    assert len(set(one.unknown.tolist())) == 50 and sorted(other.unknown.tolist()) == list(range(7))
    assert max(one.unknown) < 1000 and Protocol(share=0.5).draw(4, 100, 7).known.tolist() != one.known.tolist()


def test_golden_draws() -> None:
    # Published numbers come from these images: another way of drawing them is another protocol.
    assert Protocol().draw(0, 20, 9).known.tolist() == [14, 11, 9, 5]
    assert Protocol(seed=1).draw(2, 20, 9).unknown.tolist() == [0, 2, 7, 8]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"share": 0}, "share must be above 0 and at most 1, not 0"),
        ({"share": 1.01}, "share must be above 0 and at most 1, not 1.01"),
        ({"share": math.nan}, "share must be a number, not nan"),
        ({"trials": 1}, "trials must be at least 2 and at most 10,000, not 1"),
        ({"trials": 10**9}, "at most 10,000"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"fpr_rule": "last"}, "fpr_rule must be one of first, nearest, not 'last'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        Protocol(**setting)


def test_labels_instead_of_confidences_are_refused() -> None:
    with pytest.raises(MacsError, match="holds labels"):
        drawn_metrics([0.1, 0.9, 0.4, 0.8], [0, 1, 0, 1], Protocol(share=1))
