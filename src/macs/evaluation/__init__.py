"""Evaluation: how well a network's confidence tells known from unknown images, as numbers and as tables."""

from typing import TYPE_CHECKING

from macs.core.lazy import lazily

if TYPE_CHECKING:
    from macs.evaluation.measurement import (
        Evaluation,
        Ranking,
        SetResult,
        evaluate,
        evaluate_scores,
        measure,
    )

__all__ = [
    "Evaluation",
    "Ranking",
    "SetResult",
    "evaluate",
    "evaluate_scores",
    "measure",
]

__getattr__ = lazily(__name__, dict.fromkeys(__all__, "macs.evaluation.measurement"))
