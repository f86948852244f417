"""Checks before a training, and validation after each of its epochs.

A check refuses what would fail later or go wrong silently, and warns of likely mistakes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize

from macs import methods, nets, scores
from macs.core.console import warn
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.core.settings import unusual
from macs.data import FeatureSet, ImageSet
from macs.data.batches import to_float
from macs.data.compatibility import same_classes
from macs.data.imageset import require_images
from macs.data.spec import same_pixels
from macs.inference import ENOUGH, normalising_layer, outputs_of, warn_of_softmax
from macs.methods import Method
from macs.metrics import ood_metrics
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder
from macs.training.spec import RANDOM

SAMPLE = 300  # images of each kind whose features are compared
CLOSEST = 0.25  # an outlier resembles a class if it is as close to it as the closest quarter of its images are
NOTICEABLE = 0.05  # share of outliers; of clean sets, up to 0.027 do (docs/methods.md)
FEWEST_ID, FEWEST_OF_CLASS, FEWEST_ALIKE = 20, 10, 3  # images to compare with, and outliers to warn of


def check_compatibility(
    net: nn.Module, train: ImageSet, outliers: ImageSet | None, recipe: Recipe, method: Method
) -> None:
    """Refuse a network, images and a method that do not fit each other."""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels; a folder needs one sub-folder per class.")
    if method.needs_outliers and outliers is None:
        raise MacsError(f"{methods.name_of(method)} needs outliers; give a set of images that belong to no class.")
    if method.needs_outliers and recipe.batch_out < 1:
        raise MacsError(f"{methods.name_of(method)} needs outliers, so batch_out must be at least 1.")
    if isinstance(train, FeatureSet):
        check_recipe_for_features(train, recipe, method)
    if outliers is not None and outliers.size != train.size and isinstance(train, FeatureSet):
        widths = f"{train.name} has {train.size} and {outliers.name} {outliers.size}"
        raise MacsError(f"Training rows and outliers must have the same features, but {widths}.")
    if outliers is not None and outliers.size != train.size:
        sizes = f"{train.name} is {train.size} pixels wide and {outliers.name} {outliers.size}"
        raise MacsError(f"Images and outliers must have one size, but {sizes}; load both at the same size.")
    if outliers is not None and same_pixels(outliers, train):
        raise MacsError(
            f"The outliers of {outliers.name} are the training images of {train.name} themselves; "
            "give images that belong to no class."
        )
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise MacsError(
            f"{nets.name_of(net)} has no weights to train: all are frozen, or there are none; unfreeze some."
        )
    if recipe.start_share and nets.origin_of(net).source == RANDOM:
        raise MacsError(
            "start_share keeps a share of the starting weights, and these are random; start from a trained classifier "
            "(--checkpoint), or leave start_share out."
        )
    with torch.no_grad():
        first = to_float(torch.as_tensor(train.pixels[:ENOUGH]), device_of(net))
        logits = nets.logits_of(net.eval(), first)
    if len(logits) == ENOUGH:
        warn_of_softmax(net, normalising_layer(logits))
    if not logits.isfinite().all():
        raise MacsError(f"{nets.name_of(net)} gives logits that are not finite before any training; check its weights.")
    outputs = logits.shape[1]
    if outputs <= train.labels.max():
        raise MacsError(
            f"{nets.name_of(net)} has {outputs} outputs, but the labels of {train.name} go up to {train.labels.max()}."
        )
    unused = outputs - len(np.unique(train.labels))
    if unused:
        warn(
            f"{nets.name_of(net)} has {outputs} outputs, but no image of {train.name} belongs to {unused} of them; "
            f"a network for these images has {outputs - unused}."
        )


def check_recipe_for_features(train: FeatureSet, recipe: Recipe, method: Method) -> None:
    """Refuse what changes pictures, which rows of features are not."""
    asked = {
        f"the method {methods.name_of(method)}": method.changes_pixels,
        f"augment {recipe.augment}": recipe.augment not in ("auto", "none"),
        "jitter": recipe.jitter > 0,
        f"outlier_mix {recipe.outlier_mix}": recipe.outlier_mix != "none",
    }
    if wrong := [name for name, is_asked in asked.items() if is_asked]:
        raise MacsError(f"{train!r} holds no pictures, which {' and '.join(wrong)} would change; leave that out.")


def warn_of_known_outliers(
    net: nn.Module, train: ImageSet, outliers: ImageSet, precision: str = "auto", progress: bool = False
) -> None:
    """Warn of outliers that may show known classes, by the features of a network that is trained already.

    The closeness of an image is the largest cosine between its features and those of up to 300 training images; the
    class of the nearest one is the class that it is close to. As many other training images are the reference: an
    outlier that is closer to its class than three quarters of those that are close to the same class resembles it.
    Nothing is said of fewer than 3 such outliers, or of less than 5% of those compared.
    """
    count = min(SAMPLE, len(train) // 2)
    if count < FEWEST_ID or train.labels is None:
        return
    bank, rest = train.split(count)
    others = rest.split(SAMPLE)[0] if len(rest) > SAMPLE else rest
    drawn = np.sort(np.random.default_rng(0).permutation(len(outliers))[:SAMPLE])
    sample = outliers.subset(drawn)
    labels = torch.from_numpy(labels_of(bank))

    def closeness(images: ImageSet) -> tuple[Tensor, Tensor]:
        closest, nearest = (directions(net, images, precision, progress) @ known.T).max(dim=1)
        return closest, labels[nearest]

    try:
        known = directions(net, bank, precision, progress)
    except MacsError:  # a network without features
        return
    reference, reference_classes = closeness(others)
    typical = reference.quantile(1 - CLOSEST).repeat(len(train.classes))
    for number, members in enumerate(reference_classes.bincount(minlength=len(typical)).tolist()):
        if members >= FEWEST_OF_CLASS:
            typical[number] = reference[reference_classes == number].quantile(1 - CLOSEST)
    closest, classes = closeness(sample)
    beyond = closest - typical[classes]
    alike = int((beyond > 0).sum())
    if alike < max(FEWEST_ALIKE, NOTICEABLE * len(sample)):
        return
    first = beyond.argsort(descending=True)[:3].tolist()
    examples = ", ".join(f"{outliers.name_of(int(drawn[i]))} (like {train.classes[int(classes[i])]})" for i in first)
    warn(
        f"Of {len(sample):,} outliers of {outliers.name}, {alike} are closer to a known class than three quarters of "
        f"its own images, for example {examples}; remove those that show known classes, which the network would learn "
        "to reject."
    )


def warn_of_normalisation(id: str, checkpoint: str | Path, normalisation: str | None) -> None:
    """Warn that a public network for SVHN may expect plain pixels, which its file does not say."""
    if id == "svhn" and normalisation is None and nets.recorded_preparation(checkpoint) is None:
        warn(
            f"{checkpoint} does not say how its images are normalised; the networks for SVHN of the authors of MaCS "
            "expect plain pixels: for these, add --normalisation none."
        )


def warn_of_familiar_sets(
    net: nn.Module, outliers: ImageSet, sets: Mapping[str, ImageSet], precision: str = "auto"
) -> None:
    """Warn of OOD sets whose images are like the outliers of the training: what is measured there is no surprise.

    An image is familiar if its features are closer to one of up to 300 outliers than those of three quarters of other
    outliers are. Nothing is said of fewer than 3 such images of a set, or of less than 5% of those compared.
    """
    count = min(SAMPLE, len(outliers) // 2)
    if count < FEWEST_ID:
        return
    bank, rest = outliers.split(count)
    others = rest.split(SAMPLE)[0] if len(rest) > SAMPLE else rest
    try:
        seen = directions(net, bank, precision)
    except MacsError:  # a network without features
        return
    typical = (directions(net, others, precision) @ seen.T).amax(1).quantile(1 - CLOSEST)
    for name, images in sets.items():
        drawn = np.sort(np.random.default_rng(0).permutation(len(images))[:SAMPLE])
        beyond = (directions(net, images.subset(drawn), precision) @ seen.T).amax(1) - typical
        alike = int((beyond > 0).sum())
        if alike >= max(FEWEST_ALIKE, NOTICEABLE * len(drawn)):
            examples = ", ".join(images.name_of(int(drawn[i])) for i in beyond.argsort(descending=True)[:3].tolist())
            warn(
                f"Of {len(drawn):,} images of {name}, {alike} are as close to outliers that the network was trained "
                f"with as those are to each other, for example {examples}; measure on other unknown images, too."
            )


def directions(net: nn.Module, images: ImageSet, precision: str, progress: bool = False) -> Tensor:
    """The features of images, each divided by its length."""
    passes = outputs_of(net, images, features=True, precision=precision, doing="comparing", progress=progress)
    return torch.cat([normalize(outputs.features, dim=1).cpu() for outputs in passes])


def divergence(recipe: Recipe, method: Method, epoch: int, step: int, folder: RunFolder | None) -> str:
    """The message for a loss that is not finite, with the settings that may have caused it."""
    progress = f" {folder.path} keeps the last finished epoch." if folder else ""
    large = [*unusual(recipe), *unusual(method)]
    suspects = (
        f"these settings are unusually large: {', '.join(large)}"
        if large
        else f"no setting is unusually large, so check the learning rate ({recipe.lr:g}) and the starting weights"
    )
    where = f"in epoch {epoch + 1}, by step {step + 1}"
    return f"The loss of {methods.name_of(method)} is not finite {where}; {suspects}.{progress}"


@dataclass(frozen=True)
class Validation:
    """Labelled ID images, and outliers if there are any, that take no part in the training."""

    images: ImageSet
    outliers: ImageSet | None = None

    def measured(self, epoch: Epoch, net: nn.Module, method: Method, precision: str) -> Epoch:
        """The epoch with the network's accuracy on these images and its AUROC, by the method's score, on the outliers.

        The network ends in the mode that it was in, and no random number is drawn.
        """
        score = "msp" if self.outliers is None else method.score
        known = scores.ask(net, self.images, score, precision)
        accuracy = float((known.index == self.images.labels).mean())
        if self.outliers is None:
            return replace(epoch, validation_accuracy=accuracy)
        unknown = scores.ask(net, self.outliers, score, precision)
        auroc = ood_metrics(known.confidence, unknown.confidence).auroc
        return replace(epoch, validation_accuracy=accuracy, validation_auroc=auroc)


def validation_on(
    images: ImageSet | None, outliers: ImageSet | None, train: ImageSet, method: Method
) -> Validation | None:
    """Return the validation on these images, None without any; raise if they do not fit the training."""
    if images is None:
        if outliers is not None:
            raise MacsError("Validation outliers are compared with validation images; give these as well.")
        return None
    require_images(images, "validation images")
    if images.labels is None:
        raise MacsError(f"{images.name} has no labels to validate with; a folder needs one sub-folder per class.")
    if same_pixels(images, train):
        raise MacsError(f"The validation images are the training images of {train.name} themselves; give others.")
    same_classes(images, train.classes, "the training images have")
    if outliers is not None:
        require_images(outliers, "validation outliers")
        if scores.get(method.score).needs("training images") or scores.get(method.score).needs("held-out images"):
            raise MacsError(
                f"{methods.name_of(method)} detects with {method.score}, which is fitted after the training; leave the "
                "validation outliers out."
            )
    for held_out in (images, outliers):
        if held_out is not None and held_out.size != train.size:
            sizes = f"{train.name} is {train.size} pixels wide and {held_out.name} {held_out.size}"
            raise MacsError(f"Training and validation images must have one size, but {sizes}; load both at the same.")
    return Validation(images, outliers)


def labels_of(train: ImageSet) -> NDArray[np.int64]:
    """Return the labels of training images; raise if there are none."""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels, so a classifier cannot learn from it; give labelled images.")
    return train.labels
