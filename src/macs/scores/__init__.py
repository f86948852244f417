"""Scores: one file each, from logits or features to one confidence an image.

Convention: a confidence is higher for ID, and `confidence >= tau` is ID (MaCS paper, Eq. 2).
"""

from typing import ClassVar

from torch import Tensor

from macs.registry import Registry


class Score:
    """Turns what a network says about N images into N confidences. `get` makes a new one, which may hold state."""

    needs_features: ClassVar[bool] = False
    """Whether `confidence` reads the features before the last layer, which the caller then has to keep."""

    def confidence(self, logits: Tensor, features: Tensor | None = None) -> Tensor:
        """N confidences, higher for ID, from N x K logits and, where needed, N x D features."""
        raise NotImplementedError


score: Registry[type[Score]] = Registry("macs.scores", "score")


def get(name: str) -> Score:
    """A new score by its name, or by 'module:Class' for one of your own."""
    return score[name]()


def available() -> list[str]:
    """The names of all scores."""
    return score.available()
