"""The batches of a training: pixels or, where the backbone is frozen and sees no random crops, its features.

Features are computed once, and every epoch then runs the last layer alone.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from macs import nets
from macs.core.devices import device_of
from macs.core.processes import ALONE, Processes
from macs.data import ImageSet
from macs.data.batches import MIX, Positions, draws, generator, labels_of, to_float, training_batches
from macs.data.transforms import Augment
from macs.inference import outputs_of
from macs.methods import Batch, Method
from macs.training.mixing import diverse_mix
from macs.training.parts import InParts
from macs.training.recipe import BACKBONE, Recipe
from macs.training.sampling import outliers_of
from macs.training.tuning import last_layer

log = logging.getLogger(__name__)
Batches = Callable[[int], Iterator[Batch]]  # the number of an epoch -> its batches


def feed(
    fabric: Fabric,
    model: nn.Module,
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    method: Method,
    recipe: Recipe,
    epochs: range,
    progress: bool,
    processes: Processes = ALONE,
) -> tuple[nn.Module, Batches]:
    """The module that a training step runs, and its batches in the epochs to come; `model` is fabric's `net`."""
    if epochs and features_suffice(net, method, recipe, train.size):
        log.info("the backbone is frozen and sees the same pixels every time: its features are computed once")
        head = fabric.setup_module(last_layer(net, train.size))
        return head, feature_batches(net, train, outliers, recipe, epochs, progress, processes)
    in_parts = InParts(model, recipe.accumulate) if recipe.accumulate > 1 else model
    return in_parts, pixel_batches(in_parts, net, train, outliers, recipe, fabric.device, processes)


def pixel_batches(
    model: nn.Module,
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    recipe: Recipe,
    device: torch.device,
    processes: Processes = ALONE,
) -> Batches:
    """Batches of augmented pixels in [0, 1] on the device, with the outliers that the recipe chooses and mixes."""

    @lru_cache(maxsize=1)  # the first epoch begins twice: for its first batch alone, then for training
    def sampled(number: int) -> ImageSet | None:
        return None if outliers is None else outliers_of(number, net, train, outliers, recipe, processes)

    def mixed(pixels: Tensor, number: int, step: int, count: int) -> Tensor:
        if recipe.outlier_mix == "none" or not count:
            return pixels
        with nets.running(net, pixels):
            return diverse_mix(model, pixels, generator(recipe.seed, number, MIX, step), processes, count)

    def epoch(number: int) -> Iterator[Batch]:
        raw = training_batches(
            train,
            sampled(number),
            recipe.batch_in,
            recipe.batch_out,
            epoch_size=recipe.epoch_size,
            seed=recipe.seed,
            epoch=number,
            balance=recipe.balance,
            augment=augmentation(recipe),
            jitter=recipe.jitter,
            part=processes.part,
        )
        for step, batch in enumerate(raw):
            images, extra = to_float(batch.images, device), to_float(batch.outliers, device)
            extra = mixed(extra, number, step, batch.outlier_count)
            yield Batch.part(processes, images, batch.labels.to(device), extra, batch.outlier_count)

    return epoch


def feature_batches(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    recipe: Recipe,
    epochs: Iterable[int],
    progress: bool,
    processes: Processes = ALONE,
) -> Batches:
    """Batches of the features of the same images, on the network's device, for these epochs.

    Only images that this process needs in these epochs pass through the network.
    """
    part = processes.part

    def drawn(number: int) -> list[tuple[Positions, Positions]]:
        return draws(
            train,
            outliers,
            recipe.batch_in,
            recipe.batch_out,
            epoch_size=recipe.epoch_size,
            seed=recipe.seed,
            epoch=number,
            balance=recipe.balance,
        )

    needed = [step for number in epochs for step in drawn(number)]
    labels = torch.from_numpy(labels_of(train))
    known = _features(net, train, [index[part] for index, _ in needed], recipe, progress)
    others = known
    if outliers is not None:
        others = _features(net, outliers, [index[part] for _, index in needed], recipe, progress)

    def epoch(number: int) -> Iterator[Batch]:
        for index, index_out in drawn(number):
            features = known(index[part])
            all_labels = labels[index].to(features.device)
            yield Batch.part(processes, features, all_labels, others(index_out[part]), len(index_out))

    return epoch


def _features(
    net: nn.Module, images: ImageSet, drawn: list[Positions], recipe: Recipe, progress: bool
) -> Callable[[Positions], Tensor]:
    """A function from drawn positions to the features of the images there."""
    positions = np.unique(np.concatenate(drawn))
    passes = outputs_of(
        net,
        images.subset(positions),
        features=True,
        precision=recipe.precision,
        doing="computing features of",
        progress=progress,
    )
    table = torch.cat([outputs.features for outputs in passes])  # outside inference mode, so that layers can learn
    return lambda index: table[torch.from_numpy(np.searchsorted(positions, index))]


def features_suffice(net: nn.Module, method: Method, recipe: Recipe, size: int) -> bool:
    """Whether a training on features is the same as on images of this size: nothing before the last layer changes."""
    if recipe.freeze != BACKBONE or augmentation(recipe) != "none" or recipe.jitter or method.changes_pixels:
        return False
    if recipe.outlier_mix != "none" or recipe.outlier_sampling != "random":  # other outliers in every epoch
        return False
    with torch.no_grad():
        pixels = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0)).to(device_of(net))
        head, features, logits = nets.through_head(net.eval(), pixels)
        # In a network that is not ours, something may follow the linear layer that ran last.
        return features.shape[1] == head.in_features and torch.allclose(head(features), logits, rtol=1e-4, atol=1e-5)


def augmentation(recipe: Recipe) -> Augment:
    """The augmentation of a recipe; auto means none if the backbone is frozen."""
    return "none" if (recipe.augment, recipe.freeze) == ("auto", BACKBONE) else recipe.augment
