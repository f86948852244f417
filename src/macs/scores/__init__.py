"""Scores: one file each, from what a network says of an image to one confidence.

Convention: a confidence is higher for ID, and `confidence >= tau` is ID (MaCS paper, Eq. 2).

    macs.scores.get("energy").confidence(logits)
    knn = macs.scores.get("knn").fit(macs.scores.know(net, train))
    knn.confidence(logits, features)

A new score is one new file here whose class is registered with `@score("name")`. Its fields are its settings; its
docstring says whose their defaults are.
"""

from macs.scores._base import FeatureScore, Known, Score, available, blamed, get, score
from macs.scores._fitting import LIMIT, Train, fit_all, know, last_layer

__all__ = [
    "LIMIT",
    "FeatureScore",
    "Known",
    "Score",
    "Train",
    "available",
    "blamed",
    "fit_all",
    "get",
    "know",
    "last_layer",
    "score",
]
