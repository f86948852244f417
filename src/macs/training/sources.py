"""From a TrainingSpec to its images and its starting network, and back."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import nn

from macs import methods, nets
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.preparation import Preparation
from macs.data.spec import MEMORY, DataSpec
from macs.methods import Method
from macs.nets import origin_of, remember_origin, weights_hash
from macs.training.recipe import Recipe
from macs.training.spec import RANDOM, Start, TrainingSpec


@dataclass(frozen=True)
class Held:
    """Images by fingerprint, and starting networks by hash, that are in memory and need not be loaded."""

    images: Mapping[str, ImageSet] = field(default_factory=dict)
    nets: Mapping[str, nn.Module] = field(default_factory=dict)

    @classmethod
    def of(cls, images: Iterable[ImageSet], networks: Iterable[nn.Module] = ()) -> "Held":
        return cls({item.spec.fingerprint: item for item in images}, {weights_hash(net): net for net in networks})


NOTHING = Held()


def spec_of(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    method: Method,
    recipe: Recipe,
    validation: ImageSet | None = None,
    validation_outliers: ImageSet | None = None,
) -> TrainingSpec:
    """The spec of a training that is about to begin."""
    return TrainingSpec(
        train=train.spec,
        outliers=None if outliers is None else outliers.spec,
        net=nets.name_of(net),
        classes=train.classes,
        preparation=nets.preparation_for(net, train),
        start=Start(*origin_of(net)),
        method=methods.name_of(method),
        recipe=replace(recipe, options=methods.settings_of(method)),
        validation=None if validation is None else validation.spec,
        validation_outliers=None if validation_outliers is None else validation_outliers.spec,
    )


def starting_net(
    name: str,
    classes: int,
    *,
    checkpoint: str | Path = "",
    dropout: float | None = None,
    seed: int = 0,
    normalisation: str | None = None,
    preparation: Preparation | None = None,
) -> nn.Module:
    """A network to start from: with the checkpoint's weights, else with random ones from the seed."""
    if checkpoint:
        return nets.load_weights(checkpoint, name, classes, dropout, normalisation, preparation=preparation, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nets.build(name, classes, dropout, normalisation, preparation)
    remember_origin(net, RANDOM, seed)
    return net


def load_images(spec: DataSpec, preparation: Preparation, root: str | Path | None, held: Held) -> ImageSet:
    """The images of a spec: those that are held, else loaded again and verified by their fingerprint."""
    images = held.images.get(spec.fingerprint)
    return spec.load(root, preparation) if images is None else images


def load_start(spec: TrainingSpec, held: Held) -> nn.Module:
    """The network that a training starts from: a copy of one that is held, else built and loaded again."""
    start = spec.start
    if start.weights in held.nets:
        net = copy.deepcopy(held.nets[start.weights])
        nets.set_geometry(net, spec.preparation)
        return net
    if start.source == MEMORY:
        raise MacsError(
            f"The training started from weights in memory (hash {start.weights}) that are not in a file; save them "
            "with macs.nets.save, load them with macs.nets.load, and train from there."
        )
    net = starting_net(
        spec.net,
        len(spec.classes),
        checkpoint=start.file,
        dropout=spec.recipe.dropout,
        seed=start.seed or 0,
        preparation=None if ":" in spec.net else spec.preparation,  # a user's own network defines its own
    )
    weights = weights_hash(net)
    if start.source == RANDOM and weights != start.weights:
        warn(f"The random weights of seed {start.seed} are not those of the spec: another version of torch drew them.")
    elif weights != start.weights:
        raise MacsError(
            f"{start.source} holds other weights (hash {weights}) than the spec ({start.weights}); "
            "restore the original file."
        )
    return net
