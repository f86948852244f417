"""From a user's options, or from a TrainingSpec, to a Training: the images, network and method in memory.

torch is imported when a network is needed, so that a path that does not exist is reported at once.
"""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from macs.core.console import tell, warn
from macs.core.errors import MacsError
from macs.data.loading import DIVISIBLE, Place, divided, load, load_held_out
from macs.data.pixels import OnBroken
from macs.data.preparation import Preparation
from macs.data.spec import MEMORY, DataSpec
from macs.training.recipe import Recipe
from macs.training.spec import RANDOM, Start, TrainingOptions, TrainingSpec

if TYPE_CHECKING:
    from torch import nn

    from macs.data import ImageSet
    from macs.methods import Method


@dataclass(frozen=True)
class Held:
    """Images by fingerprint, and starting networks by hash, that are in memory and need not be loaded."""

    images: Mapping[str, "ImageSet"] = field(default_factory=dict)
    nets: Mapping[str, "nn.Module"] = field(default_factory=dict)

    @classmethod
    def of(cls, images: Iterable["ImageSet"], networks: Iterable["nn.Module"] = ()) -> "Held":
        from macs.nets import weights_hash

        return cls({item.spec.fingerprint: item for item in images}, {weights_hash(net): net for net in networks})


NOTHING = Held()
OTHER_IMAGES = {
    "outliers": "outliers",
    "validation": "validation images",
    "validation_outliers": "validation outliers",
}


@dataclass(frozen=True, eq=False)
class Training:
    """A training with everything that its spec names in memory; `training.run` runs it, in place."""

    net: "nn.Module"
    train: "ImageSet"
    outliers: "ImageSet | None"
    method: "Method"
    recipe: Recipe
    validation: "ImageSet | None" = None
    validation_outliers: "ImageSet | None" = None

    def __post_init__(self) -> None:
        """Prepare all images as the network declares or, if it declares nothing, as the training images are.

        Outliers that the method does not need are left out.
        """
        from macs import nets
        from macs.data.imageset import require_images

        nets.require_net(self.net)
        train = nets.prepared_for(self.net, require_images(self.train, "training images"))
        sets: dict[str, ImageSet | None] = {"train": train}
        for name, what in OTHER_IMAGES.items():
            images = getattr(self, name)
            sets[name] = None if images is None else nets.prepared_for(self.net, require_images(images, what), train)
        recipe = self.recipe
        if not self.method.needs_outliers:
            sets["outliers"], recipe = None, replace(recipe, batch_out=0)
        for name, value in {**sets, "recipe": recipe}.items():
            object.__setattr__(self, name, value)

    @property
    def held(self) -> Held:
        """Its images, as they are prepared for its network, and this network, for whoever has the spec alone."""
        sets = (self.train, self.outliers, self.validation, self.validation_outliers)
        return Held.of([images for images in sets if images is not None], [self.net])

    @cached_property
    def spec(self) -> TrainingSpec:
        """What a run folder records; it describes the network as it is when this is first read."""
        from macs import methods, nets

        others = {name: getattr(self, name) for name in OTHER_IMAGES}
        return TrainingSpec(
            train=self.train.spec,
            net=nets.name_of(self.net),
            classes=self.train.classes,
            preparation=nets.preparation_for(self.net, self.train),
            start=Start(*nets.origin_of(self.net)),
            method=methods.name_of(self.method),
            recipe=replace(self.recipe, options=methods.settings_of(self.method)),
            **{name: None if images is None else images.spec for name, images in others.items()},
        )


def requested(options: TrainingOptions, root: Path | None = None, broken: OnBroken = "stop") -> Training:
    """Load what the options name: the ID images, the outliers, the parts that validate, and the starting network."""
    preparation = options.preparation
    train, validation = _id_images(options, root, broken)

    from macs import methods

    method = methods.build(options.method, options.recipe.options)
    outliers = validation_outliers = None
    if method.needs_outliers:
        outliers = load(options.outliers, "train", root=root, preparation=preparation, labelled=False, broken=broken)
        if validation is not None:
            validation_outliers = load_held_out(options.outliers, root, preparation, labelled=False, broken=broken)
            if validation_outliers is None:
                warn(f"{options.outliers} has no val part, so validation measures accuracy alone.")
    net = options.starting_net(classes=len(train.classes))
    return Training(net, train, outliers, method, options.recipe, validation, validation_outliers)


def _id_images(options: TrainingOptions, root: Path | None, broken: OnBroken) -> "tuple[ImageSet, ImageSet | None]":
    """Return the training images, and validation images if they are wanted; a set without splits is divided."""
    if parts := parts_of_undivided(options, root, broken):
        return parts["train"], parts["val"] if options.validate else None
    train = load(options.id, "train", root=root, preparation=options.preparation, broken=broken)
    validation = load_held_out(options.id, root, options.preparation, broken=broken) if options.validate else None
    if options.validate and validation is None:
        raise MacsError(f"{options.id} has no val part to validate on; name a set that has one, or drop --validate.")
    return train, validation


def parts_of_undivided(options: TrainingOptions, root: Path | None, broken: OnBroken = "stop") -> "dict[str, ImageSet]":
    """Return the parts train, val and test of an ID set without splits, and say so; none if it has splits."""
    if not Place(options.id).undivided:
        return {}
    images = load(options.id, "train", root=root, preparation=options.preparation, broken=broken)
    if len(images) < DIVISIBLE:
        return {}
    parts = divided(images)
    tell(
        f"{options.id} has no train, val and test parts: of its {len(images):,} images, {len(parts['train']):,} train "
        f"the network, {len(parts['val']):,} are held out to calibrate on and {len(parts['test']):,} to evaluate on "
        "(drawn at random, always the same ones)."
    )
    return parts


def load_training(spec: TrainingSpec, root: str | Path | None = None, held: Held = NOTHING) -> Training:
    """Load what a spec names, unless it is held in memory."""
    train = load_images(spec.train, spec.preparation, root, held)
    outliers, validation, validation_outliers = (
        None if data is None else load_images(data, spec.preparation, root, held)
        for data in (spec.outliers, spec.validation, spec.validation_outliers)
    )
    net = load_start(spec, held)

    from macs import methods

    method = methods.build(spec.method, spec.recipe.options)
    return Training(net, train, outliers, method, spec.recipe, validation, validation_outliers)


def starting_net(
    name: str,
    classes: int,
    *,
    checkpoint: str | Path = "",
    dropout: float | None = None,
    seed: int = 0,
    normalisation: str | None = None,
    preparation: Preparation | None = None,
) -> "nn.Module":
    """Return a network to start from: with the checkpoint's weights, else with random ones from the seed."""
    import torch

    from macs import nets

    if checkpoint:
        return nets.load_weights(checkpoint, name, classes, dropout, normalisation, preparation=preparation, seed=seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nets.build(name, classes, dropout, normalisation, preparation)
    nets.remember_origin(net, RANDOM, seed)
    return net


def load_images(spec: DataSpec, preparation: Preparation, root: str | Path | None, held: Held) -> "ImageSet":
    """Return the images of a spec: those that are held, else loaded again and verified by their fingerprint."""
    images = held.images.get(spec.fingerprint)
    return spec.load(root, preparation) if images is None else images


def load_start(spec: TrainingSpec, held: Held) -> "nn.Module":
    """Return the network that a training starts from: a copy of one that is held, else built and loaded again."""
    from macs import nets

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
    weights = nets.weights_hash(net)
    if start.source == RANDOM and weights != start.weights:
        warn(f"The random weights of seed {start.seed} are not those of the spec: another version of torch drew them.")
    elif weights != start.weights:
        raise MacsError(
            f"{start.source} holds other weights (hash {weights}) than the spec ({start.weights}); "
            "restore the original file."
        )
    return net
