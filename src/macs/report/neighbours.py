"""What the detector compares an image with: the training images that are nearest to it, and their classes.

Near is a small angle between the features of the network, the distance of the score `knn`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macs.report.findings import Judged
from macs.report.thumbnails import png_uri

if TYPE_CHECKING:
    from torch import nn

    from macs.data import ImageSet
    from macs.scores import Score, Train

NEAREST = 3  # training images beside each image
MOST = 4  # images of a set; fewer if there are many sets
ALL = 24


@dataclass(frozen=True)
class Neighbour:
    """A training image, its class, and the cosine of the angle between its features and those of the image."""

    uri: str
    name: str
    truth: str
    cosine: float


@dataclass(frozen=True)
class Compared:
    """An image of a set, by its position, and the training images nearest to it, the nearest first."""

    position: int
    nearest: list[Neighbour]


def neighbours_of(
    net: "nn.Module", score: "Score", sets: Sequence[Judged], train: "Train", precision: str, progress: bool
) -> list[list[Compared]]:
    """Return, for each set, its least and its most confident images and what they are near to.

    There is nothing to return if the score does not compare features with those of training images, or if these have
    no labels.
    """
    if score.reads != "features" or not score.needs("training images"):
        return []
    images = train() if callable(train) else train
    if images is None:
        return []
    import torch
    from torch.nn.functional import normalize

    from macs import nets, scores
    from macs.inference import outputs_of

    known = scores.know(net, images, precision=precision, progress=progress)
    drawn = known.images
    if drawn is None or drawn.labels is None:
        return []
    bank = normalize(known.features)
    count = max(1, min(MOST, ALL // len(sets)))
    found = []
    for judged in sets:
        positions = both_ends(judged.confidence, count)
        chosen = nets.prepared_for(net, judged.images.subset(positions))
        features = [outputs.features for outputs in outputs_of(net, chosen, features=True, precision=precision)]
        cosines, places = (normalize(torch.cat(features)) @ bank.T).topk(min(NEAREST, len(bank)))
        rows = zip(positions.tolist(), places.tolist(), cosines.tolist(), strict=True)
        found.append([Compared(i, neighbours(drawn, drawn.labels, near, cosine)) for i, near, cosine in rows])
    return found


def both_ends(confidence: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Return the positions of `count` images: half of them the least confident, half the most confident."""
    order = np.argsort(confidence, kind="stable")
    count = min(count, len(order))
    return np.concatenate([order[: (count + 1) // 2], order[len(order) - count // 2 :]])


def neighbours(
    train: "ImageSet", labels: NDArray[np.int64], places: list[int], cosines: list[float]
) -> list[Neighbour]:
    """Return these training images as the page shows them."""
    pixels = train.pixels[np.array(places)]
    return [
        Neighbour(png_uri(pixels[i]), train.name_of(place), train.classes[labels[place]], cosine)
        for i, (place, cosine) in enumerate(zip(places, cosines, strict=True))
    ]
