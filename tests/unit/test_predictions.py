"""Predictions for a set: batch by batch in one pass, and the reason where a score gives none."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from macs import nets
from macs.core.errors import MacsError
from macs.data import batches
from macs.inference import Outputs
from macs.scores import Predictions, Score, answer, ask, ask_all, get, joined
from tiny import noise


class First(Score):
    """The first logit."""

    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, 0]


class Column(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, :1]


class Words(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return cast(Any, "sure")


class Failing(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        raise ZeroDivisionError("no such image")


class Late(Score):
    """Numbers for batches that are full."""

    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits[:, 0] if len(outputs) == 8 else outputs.logits[:, 0] * torch.nan


class Colours(nn.Module):
    """Logits that are an image's mean colours, and how many batches went by."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.batches = nn.Parameter(torch.ones(())), 0

    def forward(self, pixels: Tensor) -> Tensor:
        self.batches += 1
        return self.scale * pixels.mean(dim=(2, 3))


def test_answers_are_those_of_every_image_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches.batches_of, "__defaults__", (7,))
    images, net = noise(20, seed=0), Colours()
    colours = images.pixels[:].mean(axis=(1, 2)) / 255
    found = ask(net, images, First(), "float32")
    np.testing.assert_allclose(found.confidence, colours[:, 0], rtol=1e-5)
    assert found.index.tolist() == colours.argmax(1).tolist()
    assert len(found) == 20 and net.batches == 3


def test_a_score_that_fails_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches.batches_of, "__defaults__", (8,))
    images, net = noise(20, seed=0), Colours()  # batches of 8, 8 and 4
    failing = {"column": Column(), "words": Words(), "failing": Failing(), "late": Late(), "knn": get("knn")}
    answers, left_out = ask_all(net, images, {"first": First(), **failing}, "float32")
    assert list(answers) == ["first"] and left_out.keys() == failing.keys() and net.batches == 3
    np.testing.assert_array_equal(answers["first"].confidence, ask(Colours(), images, First(), "float32").confidence)
    assert left_out["column"].startswith("The score Column gives (8, 1) for 8 images; it must return a tensor")
    assert left_out["words"].startswith("The score Words gives str for 8 images")
    assert left_out["failing"] == "The score Failing failed: ZeroDivisionError: no such image."
    assert "has to be fitted first" in left_out["knn"]
    assert left_out["late"].startswith("4 of 20 images of noise get a confidence that is not a number")


def test_a_score_asked_alone_raises_its_reason() -> None:
    with pytest.raises(MacsError, match="^The score Failing failed: ZeroDivisionError"):
        ask(Colours(), noise(3, seed=0), Failing())


def test_a_confidence_that_is_no_number_is_counted() -> None:
    answers = Predictions(np.zeros(4, np.int64), np.array([1, np.nan, np.inf, np.nan], np.float32))
    with pytest.raises(MacsError, match="^2 of 4 images of photos get a confidence that is not a number"):
        answers.checked("photos")
    whole = Predictions(np.zeros(2, np.int64), np.array([1, -np.inf], np.float32))
    assert whole.checked("photos") is whole


@pytest.mark.parametrize(
    ("given", "kept"), [(torch.bfloat16, np.float32), (torch.float32, np.float32), (torch.float64, np.float64)]
)
def test_confidences_are_kept_in_float32_or_better(given: Any, kept: Any) -> None:
    logits = torch.tensor([[0.5, 2.0], [3.0, 1.0]], dtype=given, requires_grad=True)
    found = answer(First(), Outputs(logits))
    assert found.confidence.dtype == kept and found.confidence.tolist() == [0.5, 3.0]
    assert found.index.tolist() == [1, 0]


def test_joined_batches_are_one() -> None:
    parts = [Predictions(np.array(labels), np.array(labels, np.float32) * np.float32(0.5)) for labels in ([1, 2], [3])]
    both = joined(iter(parts))
    assert both.index.tolist() == [1, 2, 3] and both.confidence.tolist() == [0.5, 1, 1.5]


def test_our_networks_answer_as_their_logits_say() -> None:
    torch.manual_seed(0)
    net, images = nets.build("wrn-10-1", 3), noise(6, seed=1)
    logits = net.eval()(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(ask(net, images, First(), "float32").confidence, logits[:, 0].detach(), atol=1e-4)
