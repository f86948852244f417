"""From a network and ID training images to fitted scores."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from macs import nets
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import to_float
from macs.inference import outputs_of
from macs.scores._score import Known, Score

LIMIT = 10_000  # training images: enough for every score here, and a fifth of the cost of CIFAR's 50,000
FEW = 8  # images that show which layer is the last, and whether its features have both signs
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
    """Fit the scores that need it from one pass over training images; what cannot be fitted is left out.

    A score that is fitted already stays as it is. Test images only show which layer of the network is the last.
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
    source, count = "", 0
    for name, score in scores.items():
        try:
            if score.fitted:
                ready[name] = score
                continue
            known = training() if score.fitted_to == "training images" else layer()
            ready[name] = score.fit(known)
            if known.source:
                source, count = known.source, len(known)
        except MacsError as error:
            left_out[name] = str(error)
    return Fitted(ready, left_out, source, count)


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
    logits, features = [], []
    for outputs in outputs_of(net, images, features=True, precision=precision, doing="fitting to", progress=progress):
        logits.append(outputs.logits)
        features.append(outputs.features)
    return replace(
        known,
        logits=torch.cat(logits),
        features=torch.cat(features),
        negative=negative_share(torch.cat(features)),
        labels=None if images.labels is None else torch.from_numpy(images.labels).to(known.weight.device),
        source=train.name,
    )


@torch.no_grad()
def last_layer(net: nn.Module, images: ImageSet) -> Known:
    """The last layer alone, for scores that need no training images; a few images show which layer that is."""
    pixels = to_float(torch.from_numpy(np.array(images.pixels[:FEW])), device_of(net))
    was_training = net.training
    try:
        head, features, logits = nets.through_head(net.eval(), pixels)
        if not nets.is_ours(net):
            logits = nets.logits_of(net, pixels)
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
        negative=negative_share(features),
        weight=weight,
        bias=weight.new_zeros(len(weight)) if head.bias is None else head.bias.detach().float().clone(),
        network=nets.weights_hash(net),
    )


def negative_share(features: Tensor) -> float:
    """The share of negative features in the sum of all absolute values."""
    total = float(features.abs().sum())
    return float(-features.clamp(max=0).sum()) / total if total else 0.0


def ready(score: Score, net: nn.Module, network: str = "") -> Score:
    """The score, on the network's device; refused where it is not fitted, or fitted to another network.

    `network` is the hash of the network's weights, where it is known already.
    """
    if not score.fitted:
        raise MacsError(f"{score!r} has to be fitted first, to this network and its {score.fitted_to}.")
    if score.bound_to and score.bound_to != (network or nets.weights_hash(net)):
        raise MacsError(
            f"{score!r} is fitted to another network, or to other weights, than this {nets.name_of(net)}; fit it anew."
        )
    return score.to(device_of(net))
