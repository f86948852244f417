"""What could only fail later in a training, or worse, not fail, is refused; what is likely a mistake is pointed out."""

import numpy as np
import torch
from torch import nn

from macs import methods, nets
from macs.core.console import warn
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.core.settings import unusual
from macs.data import ImageSet
from macs.data.fingerprint import same_pixels
from macs.methods import Method
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder


def check_fitness(net: nn.Module, train: ImageSet, outliers: ImageSet | None, recipe: Recipe, method: Method) -> None:
    """Do network, images and method fit each other?"""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels; a folder needs one sub-folder per class.")
    if method.needs_outliers and outliers is None:
        raise MacsError(f"{methods.name_of(method)} needs outliers; give a set of images that belong to no class.")
    if method.needs_outliers and recipe.batch_out < 1:
        raise MacsError(f"{methods.name_of(method)} needs outliers, so batch_out must be at least 1.")
    if outliers is not None and outliers.size != train.size:
        sizes = f"{train.name} is {train.size} pixels wide and {outliers.name} {outliers.size}"
        raise MacsError(f"Images and outliers must have one size, but {sizes}.")
    if outliers is not None and same_pixels(outliers, train):
        raise MacsError(
            f"The outliers of {outliers.name} are the training images of {train.name} themselves; "
            "give images that belong to no class."
        )
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise MacsError(f"{nets.name_of(net)} has no weights to train: all are frozen, or there are none.")
    with torch.no_grad():
        logits = nets.logits_of(net.eval(), torch.zeros(1, 3, train.size, train.size, device=device_of(net)))
    if not logits.isfinite().all():
        raise MacsError(f"{nets.name_of(net)} gives logits that are not finite before any training; check its weights.")
    outputs = logits.shape[1]
    if outputs <= train.labels.max():
        raise MacsError(
            f"{nets.name_of(net)} has {outputs} outputs, but the labels of {train.name} go up to {train.labels.max()}."
        )
    idle = outputs - len(np.unique(train.labels))
    if idle:
        warn(
            f"{nets.name_of(net)} has {outputs} outputs, but no image of {train.name} belongs to {idle} of them; "
            f"a network for these images has {outputs - idle}."
        )


def divergence(recipe: Recipe, method: Method, epoch: int, step: int, folder: RunFolder | None) -> str:
    """What is known about a loss that is not finite; the cause is not."""
    kept = f" {folder.path} keeps the last finished epoch." if folder else ""
    large = [*unusual(recipe), *unusual(method)]
    suspects = (
        f"what is unusually large is {', '.join(large)}"
        if large
        else f"no setting is unusually large, so check the learning rate ({recipe.lr:g}) and the starting weights"
    )
    where = f"in epoch {epoch + 1}, by step {step + 1}"
    return f"The loss of {methods.name_of(method)} is not finite any more {where}; {suspects}.{kept}"
