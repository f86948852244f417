"""Evaluation: how well a network's confidence tells known from unknown images, as numbers and as tables."""

from typing import TYPE_CHECKING

from macs.core.lazy import lazily

if TYPE_CHECKING:
    from macs.evaluation.measurement import (
        Answers,
        Evaluation,
        Ranking,
        SetResult,
        evaluate,
        evaluate_scores,
        measure,
        run_net,
        run_scores,
    )

__all__ = [
    "Answers",
    "Evaluation",
    "Ranking",
    "SetResult",
    "evaluate",
    "evaluate_scores",
    "measure",
    "run_net",
    "run_scores",
]

__getattr__ = lazily(__name__, dict.fromkeys(__all__, "macs.evaluation.measurement"))
