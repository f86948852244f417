"""Evaluation: how well a network's confidence tells known from unknown images, as numbers and as tables."""

from typing import TYPE_CHECKING

from macs.core import lazily

if TYPE_CHECKING:
    from macs.evaluation.networks import evaluate, evaluate_scores
    from macs.evaluation.protocol import Protocol
    from macs.evaluation.results import Evaluation, Ranking, SetResult, measure

__all__ = [
    "Evaluation",
    "Protocol",
    "Ranking",
    "SetResult",
    "evaluate",
    "evaluate_scores",
    "measure",
]

__getattr__ = lazily(
    __name__,
    {
        **dict.fromkeys(("Evaluation", "Ranking", "SetResult"), "macs.evaluation.results"),
        **dict.fromkeys(("evaluate", "evaluate_scores"), "macs.evaluation.networks"),
        "Protocol": "macs.evaluation.protocol",
        "measure": "macs.evaluation.results",
    },
)
