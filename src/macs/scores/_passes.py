"""Passes over images: what a score is fitted to, and one prediction per image."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from macs import nets
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import to_float
from macs.data.conversion import to_images
from macs.inference import Outputs, outputs_of
from macs.predictions import NO_CLASS, Predictions, joined
from macs.scores._score import Known, Score, confidence_of
from macs.scores.combined import MOST, held_out_of

LIMIT = 10_000  # training images that scores are fitted to: a fifth of CIFAR's, and enough for every score here
FEW = 8  # images that are passed through a network to find its last layer and the signs of its features
Train = ImageSet | Callable[[], ImageSet | None] | None  # a function is called only if a score needs its images


class Fitted(NamedTuple):
    """The result of `fit_all`."""

    scores: dict[str, Score]  # those that are ready to use
    left_out: dict[str, str]  # score -> the reason why it cannot be used
    train: str  # name and number of the training images that scores were fitted to
    images: int
    held_out: str  # name and number of the images that sums were standardised on
    held_out_images: int


def fit_all(
    scores: Mapping[str, Score],
    net: nn.Module,
    test: ImageSet,
    train: Train = None,
    held_out: Train = None,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    precision: str = "auto",
    progress: bool = False,
) -> Fitted:
    """Fit the scores that need it, from one pass over training images; scores that cannot be fitted are left out.

    A score that is fitted already stays as it is. Test images only serve to find the last layer of the network. Sums
    are standardised on `held_out`, ID images that the network was not trained on; if there are none, on some of the
    training images, to which the parts of the sums are then not fitted.
    """

    def fetched(images: Train, what: str) -> ImageSet | None:
        try:
            fetched_images = images() if callable(images) else images
        except MacsError as error:
            raise MacsError(f"Scores that are fitted need {what}: {error}") from None
        if fetched_images is test:
            raise MacsError(f"Scores are never fitted to the test images {test.name}; give {what}.")
        if fetched_images is None:
            return None
        return nets.prepared_for(net, to_images(fetched_images, what, nets.preparation_of(net)), like=test)

    @cache
    def layer() -> Known:
        return last_layer(net, test)

    @cache
    def training() -> Known:
        images = fetched(train, "ID training images")
        if images is None:
            return layer()
        return know(net, images, limit=limit, seed=seed, precision=precision, progress=progress)

    @cache
    def with_held_out() -> Known:
        images = fetched(held_out, "held-out ID images")
        if images is None:
            return training().divided(held_out_of(len(training())), seed)
        return _holding_out(layer(), net, images, seed, precision, progress)

    def known_to(score: Score) -> Known:
        if score.needs("held-out images") and with_held_out().source:  # held out of the training images
            return with_held_out()
        known = training() if score.needs("training images") else layer()
        if not score.needs("held-out images"):
            return known
        other = with_held_out()
        return replace(
            known,
            held_out=other.held_out,
            held_out_source=other.held_out_source,
            held_out_images=other.held_out_images,
        )

    ready, left_out = {}, {}
    source, count, out_source, out_count = "", 0, "", 0
    for name, score in scores.items():
        try:
            if score.fitted:
                ready[name] = score
                continue
            known = known_to(score)
            ready[name] = score.fit(known)
            if len(known) > count:
                source, count = known.source, len(known)
            if known.held_out is not None:
                out_source, out_count = known.held_out_source, len(known.held_out)
        except MacsError as error:
            left_out[name] = str(error)
    return Fitted(ready, left_out, source, count, out_source, out_count)


def know(
    net: nn.Module,
    train: Any,
    held_out: Any = None,
    *,
    limit: int = LIMIT,
    seed: int = 0,
    precision: str = "auto",
    progress: bool = False,
) -> Known:
    """Return a network's outputs for at most `limit` training images (0: all), drawn at random, and its last layer.

    Sums of scores also need held-out ID images, of which at most 1,000 are used. Both are ImageSets, or have any other
    form of macs.data.conversion, such as a tensor or a DataLoader of images and labels.
    """
    train, held_out = (
        None if images is None else to_images(images, what, nets.preparation_of(net))
        for images, what in ((train, "training images"), (held_out, "held-out images"))
    )
    if limit < 0:
        raise MacsError(f"The number of training images must be 0 (for all) or more, not {limit}.")
    if train is None:
        if held_out is None:
            raise MacsError("There are neither training images nor held-out images to fit a score to; give some.")
        known = last_layer(net, nets.prepared_for(net, held_out))
    else:
        images = nets.prepared_for(net, _drawn(train, limit, seed))
        known = last_layer(net, images)
        outputs = _outputs(net, images, precision, progress)
        known = replace(
            known,
            logits=outputs.logits,
            features=outputs.features,
            negative=negative_share(outputs.features),
            labels=None if images.labels is None else torch.from_numpy(images.labels).to(outputs.logits.device),
            source=train.name,
            images=images,
        )
    return known if held_out is None else _holding_out(known, net, held_out, seed, precision, progress)


def _drawn(images: ImageSet, limit: int, seed: int) -> ImageSet:
    """At most `limit` of the images, drawn at random; 0 is all."""
    return images.split(limit, seed)[0] if 0 < limit < len(images) else images


def _holding_out(known: Known, net: nn.Module, images: ImageSet, seed: int, precision: str, progress: bool) -> Known:
    drawn = nets.prepared_for(net, _drawn(images, MOST, seed))
    outputs = _outputs(net, drawn, precision, progress)
    return replace(known, held_out=outputs, held_out_source=images.name, held_out_images=drawn)


def _outputs(net: nn.Module, images: ImageSet, precision: str, progress: bool) -> Outputs:
    """Logits and features of all images, from one pass."""
    logits, features = [], []
    for outputs in outputs_of(net, images, features=True, precision=precision, doing="fitting to", progress=progress):
        logits.append(outputs.logits)
        features.append(outputs.features)
    return Outputs(torch.cat(logits), torch.cat(features))


@torch.no_grad()
def last_layer(net: nn.Module, images: ImageSet) -> Known:
    """Return the last layer alone, for scores that need no training images; a few images, prepared for it, find it."""
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
            f"The last linear layer of {nets.name_of(net)} does not compute its logits, so its features cannot be "
            "scored; use a score of the logits."
        )
    weight = head.weight.detach().float().clone()  # a copy, since the network may be trained further
    return Known(
        logits=weight.new_empty(0, len(weight)),
        features=weight.new_empty(0, head.in_features),
        labels=None,
        negative=negative_share(features),
        weight=weight,
        bias=weight.new_zeros(len(weight)) if head.bias is None else head.bias.detach().float().clone(),
        network=nets.weights_hash(net),
        net=net,
    )


def negative_share(features: Tensor) -> float:
    """Return the share of the negative features in the sum of all absolute values."""
    total = float(features.abs().sum())
    return float(-features.clamp(max=0).sum()) / total if total else 0.0


def ready(score: Score, net: nn.Module, network: str = "") -> Score:
    """Return the score, on the network's device; raise if it is not fitted, or is fitted to another network.

    `network` is the hash of the network's weights, if it is known already.
    """
    if not score.fitted:
        raise MacsError(f"{score!r} has to be fitted first, to this network and its {score.fitted_to}.")
    if score.bound_to and score.bound_to != (network or nets.weights_hash(net)):
        raise MacsError(
            f"{score!r} is fitted to another network or to other weights than this {nets.name_of(net)}; fit it again."
        )
    return score.to(device_of(net))


def ask(
    net: nn.Module, images: Any, score: str | Score, precision: str = "auto", progress: bool = False
) -> Predictions:
    """Return the predictions for a set, from one pass. A score that needs fitting must be fitted already.

    `images` is an ImageSet, or has any other form of macs.data.conversion: arrays, tensors, PIL images, a DataLoader.
    """
    from macs.scores import get  # which imports this file

    answers, left_out = ask_all(net, images, {"": get(score)}, precision, progress)
    if left_out:
        raise MacsError(left_out[""])
    return answers[""]


def ask_all(
    net: nn.Module, images: Any, scores: Mapping[str, Score], precision: str = "auto", progress: bool = False
) -> tuple[dict[str, Predictions], dict[str, str]]:
    """The predictions of all scores, from one pass over a set; scores that fail are left out, with the reason."""
    images = to_images(images, "images", nets.preparation_of(net), labelled=False)
    network = nets.weights_hash(net) if any(score.bound_to for score in scores.values()) else ""
    parts: dict[str, list[Predictions]] = {name: [] for name in scores}
    answers: dict[str, Predictions] = {}
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
    features = any(scores[name].reads == "features" for name in remaining())
    for outputs in outputs_of(net, images, features=features, precision=precision, progress=progress):
        for name in remaining():
            with attempt(name):
                parts[name].append(answer(scores[name], outputs))
    for name in remaining():
        with attempt(name):
            answers[name] = joined(parts[name]).checked(images.name)
    return answers, left_out


def answer(score: Score, outputs: Outputs) -> Predictions:
    """Return the predictions of a score for a batch."""
    confidences = confidence_of(score, outputs).detach()
    on_cpu = confidences.to("cpu", torch.promote_types(confidences.dtype, torch.float32))
    if not outputs.logits.shape[1]:  # features of a model that is no classifier
        return Predictions(np.full(len(outputs), NO_CLASS), on_cpu.numpy())
    return Predictions(outputs.logits.argmax(dim=1).cpu().numpy(), on_cpu.numpy())
