"""From a network and ID training images to fitted scores."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from macs import nets
from macs.core.console import track
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import scoring_batches, to_float
from macs.inference import BATCH, inference
from macs.scores._base import Known, Score, blamed

LIMIT = 10_000  # training images: enough for every score here, and a fifth of the cost of CIFAR's 50,000
Train = ImageSet | Callable[[], ImageSet] | None  # a function is called only if a score needs training images


class Fitted(NamedTuple):
    """Scores that are ready, those that are not with the reason, and what some of the former were fitted to."""

    scores: dict[str, Score]
    left_out: dict[str, str]
    train: str
    images: int


def fit_all(
    scores: Mapping[str, Score],
    net: nn.Module,
    test: ImageSet,
    train: Train = None,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    precision: str = "auto",
    progress: bool = False,
) -> Fitted:
    """Fit the scores that need it, in place, from one pass over training images; what cannot be fitted is left out.

    Test images only show which layer of the network is the last.
    """

    @cache
    def layer() -> Known:
        return last_layer(net, test)

    @cache
    def training() -> Known:
        try:
            images = train() if callable(train) else train
        except MacsError as error:
            raise MacsError(f"Scores that are fitted need ID training images: {error}") from None
        if images is test:
            raise MacsError(f"Scores are never fitted to the test images {test.name}; give training images.")
        if images is None:
            return layer()
        return know(net, images, limit=limit, seed=seed, precision=precision, progress=progress)

    ready, left_out = {}, {}
    for name, score in scores.items():
        try:
            if score.needs_features:
                with blamed(score):
                    score.fit(training() if score.needs_training else layer())
            ready[name] = score
        except MacsError as error:
            left_out[name] = str(error)
    if any(score.needs_training for score in ready.values()):
        return Fitted(ready, left_out, training().source, len(training()))
    return Fitted(ready, left_out, "", 0)


def know(
    net: nn.Module,
    train: ImageSet,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    precision: str = "auto",
    progress: bool = False,
) -> Known:
    """What a network says of at most `limit` of the images (0: all), drawn at random, and its last layer."""
    if limit < 0:
        raise MacsError(f"The number of training images must be 0, for all, or more, not {limit}.")
    images = train.split(limit, seed)[0] if 0 < limit < len(train) else train
    known = last_layer(net, images)
    batches = scoring_batches(images, BATCH)
    with inference(net, precision, features=True) as run:
        outputs = [run(b) for b in track(batches, -(-len(images) // BATCH), f"fitting to {images.name}", progress)]
    return replace(
        known,
        logits=torch.cat([output.logits for output in outputs]),
        features=torch.cat([output.features for output in outputs if output.features is not None]),
        labels=None if images.labels is None else torch.from_numpy(images.labels).to(known.weight.device),
        source=images.name,
    )


@torch.no_grad()
def last_layer(net: nn.Module, images: ImageSet) -> Known:
    """The last layer alone, for scores that need no training images; one image shows which layer that is."""
    pixels = to_float(torch.from_numpy(np.array(images.pixels[:1])), device_of(net))
    was_training = net.training
    try:
        head, features, logits = nets.through_head(net.eval(), pixels)
        fits = features.shape[1] == head.in_features and torch.allclose(head(features), logits, rtol=1e-3, atol=1e-3)
    finally:
        net.train(was_training)
    if not fits:
        raise MacsError(
            f"The last linear layer of {nets.name_of(net)} does not give its logits, so its features cannot be scored; "
            "use a score of the logits."
        )
    weight = head.weight.detach().float().clone()  # the network may go on learning
    return Known(
        logits=weight.new_empty(0, len(weight)),
        features=weight.new_empty(0, head.in_features),
        labels=None,
        weight=weight,
        bias=weight.new_zeros(len(weight)) if head.bias is None else head.bias.detach().float().clone(),
    )
