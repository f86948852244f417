"""Scores: from a network's outputs for an image to one confidence; one file per score.

Convention: a confidence is higher for ID, and `confidence >= tau` is ID (MaCS paper, Eq. 2).

    macs.scores.get("energy")(net(x))
    knn = macs.scores.KNN(k=10).fit(macs.scores.know(net, loader))  # or get("knn", k=10), by its name
    macs.scores.ask(net, images, knn).confidence
    macs.scores.get("msp+vim").fit(macs.scores.know(net, train, held_out))

A new score is one new file here whose class is registered with `@score("name")`. Its fields are its settings; its
docstring says where their defaults come from.
"""

import warnings
from typing import Any

from macs.predictions import Predictions, joined
from macs.scores._fitting import LIMIT, Train, fit_all, know, last_layer, ready
from macs.scores._names import available, get, get_all, name_of
from macs.scores._predicting import answer, ask, ask_all
from macs.scores._score import NETWORK, Known, NotFitted, Score, score
from macs.scores.combined import FEWEST, MOST, Combined, enough_held_out, held_out_of

__all__ = [
    "FEWEST",
    "LIMIT",
    "MOST",
    "NETWORK",
    "Combined",
    "Known",
    "NotFitted",
    "Predictions",
    "Score",
    "Train",
    "answer",
    "ask",
    "ask_all",
    "available",
    "enough_held_out",
    "fit_all",
    "get",
    "get_all",
    "held_out_of",
    "joined",
    "know",
    "last_layer",
    "name_of",
    "ready",
    "score",
]


def __getattr__(name: str) -> Any:
    if name == "Answers":
        warnings.warn("macs.scores.Answers is now called Predictions.", DeprecationWarning, stacklevel=2)
        return Predictions
    if name[:1].isupper():  # a class, whose file is imported on first use
        for entry in score.entries().values():
            if entry.__name__ == name:
                return entry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
