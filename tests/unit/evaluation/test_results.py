"""What an evaluation found: means over sets and draws by hand, and everything as JSON."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macs.evaluation import Evaluation, Protocol, Ranking, SetResult, measure
from macs.metrics import OODMetrics, available

NAMES = [each.name for each in available()]


def numbers(start: float) -> OODMetrics:
    """A different number for every metric."""
    return OODMetrics(**{name: start + 0.01 * place for place, name in enumerate(NAMES)})


@pytest.fixture
def evaluation() -> Evaluation:
    """Two sets and three draws, with AUROCs that are easy to average."""
    sets = [
        SetResult("near", 40, numbers(0.5), [numbers(0.4), numbers(0.5), numbers(0.6)]),
        SetResult("far", 60, numbers(0.9), [numbers(0.8), numbers(0.9), numbers(0.7)]),
    ]
    return Evaluation("photos", 50, "msp", Protocol(trials=3), 0.75, [0.7, 0.8, 0.9], sets)


def test_means_are_over_sets_first(evaluation: Any) -> None:
    assert evaluation.mean("auroc") == pytest.approx((0.5 + 0.9) / 2)
    assert evaluation.draw_means("auroc") == pytest.approx([0.6, 0.7, 0.65])
    assert evaluation.drawn == 10  # a fifth of 50


def test_json_has_every_number_and_the_standard_error_of_the_draws(evaluation: Any) -> None:
    value = json.loads(json.dumps(evaluation.as_dict()))
    assert value["ood"]["far"]["full"] == dict(numbers(0.9)) and list(value["ood"]) == ["near", "far"]
    assert [draw["auroc"] for draw in value["ood"]["near"]["draws"]] == [0.4, 0.5, 0.6]
    error = np.std([0.6, 0.7, 0.65], ddof=1) / np.sqrt(3)
    assert value["mean"]["draws"]["auroc"] == pytest.approx({"mean": 0.65, "error": error})
    assert value["mean"]["accuracy"].pop("draws") == [0.7, 0.8, 0.9]
    assert value["mean"]["accuracy"] == pytest.approx({"mean": 0.8, "error": 0.1 / np.sqrt(3)})
    assert set(NAMES) <= set(value["conventions"]) and value["conventions"]["confidence"] == "msp; higher means ID"
    assert value["conventions"]["fpr_rule"] == "first threshold"


def test_a_ranking_finds_its_scores_by_name_and_keeps_their_order(evaluation: Any) -> None:
    other = replace(evaluation, score="knn")
    ranking = Ranking([other, evaluation], {"vim": "no residual"}, "photos", 30, ["knn"])
    assert ranking["msp"] is evaluation and ranking["knn"] is other
    with pytest.raises(KeyError):
        ranking["vim"]
    value = json.loads(json.dumps(ranking.as_dict()))
    assert list(value["scores"]) == ["knn", "msp"] and value["left_out"] == {"vim": "no residual"}
    assert value["scores"]["msp"] == {key: evaluation.as_dict()[key] for key in ("ood", "mean", "selective")}
    assert value["fitted"] == {"train": "photos", "images": 30, "scores": ["knn"]}
    assert value["id"] == {"name": "photos", "images": 50, "accuracy": 0.75}


def test_measuring_confidences_gives_such_a_result() -> None:
    random = np.random.default_rng(0)
    conf_in, conf_out = random.random(100).astype(np.float32), random.random(40).astype(np.float32)
    found = measure("photos", np.arange(100) % 4 > 0, conf_in, {"far": conf_out}, "energy", Protocol(trials=4))
    assert (found.accuracy, found.images, found.sets[0].images, len(found.sets[0].draws)) == (0.75, 100, 40, 4)
    pairs = np.sign(conf_in[:, None] - conf_out[None]) / 2 + 0.5
    assert found.mean("auroc") == pytest.approx(pairs.mean())
