"""Each score against numbers worked out by hand, and the convention that all of them share."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from macs import scores
from macs.core.errors import MacsError
from macs.inference import Outputs
from repository import ROOT

LOGITS = [[2.0, 0.0, -1.0], [0.5, 0.5, 0.5], [-4.0, 1.0, 3.0]]

BY_HAND: dict[str, Callable[[list[float]], float]] = {
    "msp": lambda z: math.exp(max(z)) / sum(math.exp(v) for v in z),
    "maxlogit": max,
    "energy": lambda z: math.log(sum(math.exp(v) for v in z)),
    "joint-energy": lambda z: sum(math.log(1 + math.exp(v)) for v in z),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_confidences_equal_the_formula(name: str) -> None:
    confidences = scores.get(name).confidence(Outputs(torch.tensor(LOGITS, dtype=torch.float64)))
    assert confidences.dtype == torch.float64
    assert confidences.tolist() == pytest.approx([BY_HAND[name](z) for z in LOGITS], rel=1e-14)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_sure_answer_has_a_higher_confidence_than_an_unsure_one(name: str) -> None:
    sure, unsure = scores.get(name).confidence(Outputs(torch.tensor([[9.0, 0.0, 0.0], [1.0, 0.9, 1.1]])))
    assert sure > unsure


@pytest.mark.parametrize("name", ["msp", "energy"])
def test_half_precision_logits_give_float32_confidences(name: str) -> None:
    logits = torch.tensor(LOGITS).bfloat16()
    confidences = scores.get(name).confidence(Outputs(logits))
    assert torch.equal(confidences, scores.get(name).confidence(Outputs(logits.float())))


@pytest.mark.parametrize("name", ["maxlogit", "energy"])
def test_large_logits_neither_overflow_nor_tie(name: str) -> None:
    confidences = scores.get(name).confidence(Outputs(torch.tensor([[2000.0, 0.0], [3000.0, 0.0]])))
    assert confidences.tolist() == [2000, 3000]


def test_several_labels_count_for_joint_energy_alone() -> None:
    one, three = Outputs(torch.tensor([[6.0, -6.0, -6.0]])), Outputs(torch.tensor([[6.0, 6.0, 6.0]]))
    joint, largest = scores.get("joint-energy"), scores.get("maxlogit")
    assert joint.confidence(three) > 2.9 * joint.confidence(one)
    assert largest.confidence(three) == largest.confidence(one)


def test_the_names_and_a_wrong_one() -> None:
    assert set(BY_HAND) <= set(scores.available())
    assert all(scores.get(name).reads == "logits" and scores.get(name).fitted for name in BY_HAND)
    with pytest.raises(MacsError, match="did you mean 'maxlogit'"):
        scores.get("maxlogits")


def test_every_score_has_a_row_in_the_documentation() -> None:
    lines = (ROOT / "docs" / "scores.md").read_text(encoding="utf-8").splitlines()
    first_cells = [line.split("|")[1] for line in lines if line.startswith("| `") and line.count("|") == 5]
    assert {*scores.available()} <= {name for cell in first_cells for name in re.findall("`([^`]+)`", cell)}


def test_each_get_makes_a_new_score() -> None:
    assert scores.get("msp") is not scores.get("msp")


def test_a_score_from_outside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside_score.py").write_text(
        "from macs.scores import Score\n\n\nclass Second(Score):\n"
        "    def confidence(self, outputs):\n        return -outputs.logits.topk(2).values[:, 1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    confidences = scores.get("outside_score:Second").confidence(Outputs(torch.tensor(LOGITS)))
    assert confidences.tolist() == [0, -0.5, -1]
    with pytest.raises(MacsError, match="not a score"):
        scores.get("math:sqrt")
