"""From a network and a score to one prediction per image."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from macs import nets
from macs.core.errors import MacsError
from macs.data.conversion import to_images
from macs.inference import Outputs, outputs_of
from macs.predictions import Predictions, joined
from macs.scores._fitting import ready
from macs.scores._names import get
from macs.scores._score import Score, confidence_of


def ask(
    net: nn.Module, images: Any, score: str | Score, precision: str = "auto", progress: bool = False
) -> Predictions:
    """Return the predictions for a set, from one pass. A score that needs fitting must be fitted already.

    `images` is an ImageSet, or has any other form of macs.data.conversion: arrays, tensors, PIL images, a DataLoader.
    """
    answers, left_out = ask_all(net, images, {"": get(score)}, precision, progress)
    if left_out:
        raise MacsError(left_out[""])
    return answers[""]


def ask_all(
    net: nn.Module, images: Any, scores: Mapping[str, Score], precision: str = "auto", progress: bool = False
) -> tuple[dict[str, Predictions], dict[str, str]]:
    """The predictions of all scores, from one pass over a set; scores that fail are left out, with the reason."""
    images = to_images(images, "images", nets.preparation_of(net), labelled=False)
    network = nets.weights_hash(net) if any(score.bound_to for score in scores.values()) else ""
    parts: dict[str, list[Predictions]] = {name: [] for name in scores}
    answers: dict[str, Predictions] = {}
    left_out: dict[str, str] = {}

    @contextmanager
    def attempt(name: str) -> Iterator[None]:
        try:
            yield
        except MacsError as error:
            left_out[name] = str(error)

    def remaining() -> list[str]:
        return [name for name in scores if name not in left_out]

    for name in remaining():
        with attempt(name):
            ready(scores[name], net, network)
    features = any(scores[name].reads == "features" for name in remaining())
    for outputs in outputs_of(net, images, features=features, precision=precision, progress=progress):
        for name in remaining():
            with attempt(name):
                parts[name].append(answer(scores[name], outputs))
    for name in remaining():
        with attempt(name):
            answers[name] = joined(parts[name]).checked(images.name)
    return answers, left_out


def answer(score: Score, outputs: Outputs) -> Predictions:
    """Return the predictions of a score for a batch."""
    confidences = confidence_of(score, outputs).detach()
    on_cpu = confidences.to("cpu", torch.promote_types(confidences.dtype, torch.float32))
    return Predictions(outputs.logits.argmax(dim=1).cpu().numpy(), on_cpu.numpy())
