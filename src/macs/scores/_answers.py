"""Answers: a prediction and a confidence for each image, from a network's outputs and a score."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.inference import Outputs, outputs_of
from macs.scores._fitting import ready
from macs.scores._names import get
from macs.scores._score import Score, confidence_of


@dataclass(frozen=True, eq=False)  # arrays do not compare to a yes or a no
class Answers:
    """One prediction and one confidence per image."""

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.predictions)

    def checked(self, images: str) -> Self:
        """These answers, or an error if a confidence is no number."""
        if broken := np.count_nonzero(np.isnan(self.confidences)):
            raise MacsError(
                f"{broken} of {len(self.confidences)} images of {images} get a confidence that is not a number; look "
                "at the network's logits for them, then at the score."
            )
        return self


def ask(
    net: nn.Module, images: ImageSet, score: str | Score, precision: str = "auto", progress: bool = False
) -> Answers:
    """One pass over a set. A score that is fitted must be so already."""
    answers, left_out = ask_all(net, images, {"": get(score)}, precision, progress)
    if left_out:
        raise MacsError(left_out[""])
    return answers[""]


def ask_all(
    net: nn.Module, images: ImageSet, scores: Mapping[str, Score], precision: str = "auto", progress: bool = False
) -> tuple[dict[str, Answers], dict[str, str]]:
    """One pass over a set for all scores; those that fail are left out with the reason and cost the others nothing."""
    network = nets.weights_hash(net) if any(score.bound_to for score in scores.values()) else ""
    features = any(score.reads == "features" for score in scores.values())
    parts: dict[str, list[Answers]] = {name: [] for name in scores}
    answers: dict[str, Answers] = {}
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
    for outputs in outputs_of(net, images, features=features, precision=precision, progress=progress):
        for name in remaining():
            with attempt(name):
                parts[name].append(answer(scores[name], outputs))
    for name in remaining():
        with attempt(name):
            answers[name] = joined(parts[name]).checked(images.name)
    return answers, left_out


def answer(score: Score, outputs: Outputs) -> Answers:
    """What a score makes of a batch."""
    found = confidence_of(score, outputs)
    confidences = found.detach().to("cpu", torch.promote_types(found.dtype, torch.float32))
    return Answers(outputs.logits.argmax(dim=1).cpu().numpy(), confidences.numpy())


def joined(parts: Iterable[Answers]) -> Answers:
    """The answers for all batches as one."""
    parts = list(parts)
    return Answers(
        np.concatenate([part.predictions for part in parts]), np.concatenate([part.confidences for part in parts])
    )
