"""Validation: held-out images that a network is measured on after each epoch of its training."""

from dataclasses import dataclass, replace

from torch import nn

from macs import methods, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fingerprint import same_pixels
from macs.data.fitness import same_classes
from macs.data.imageset import require_images
from macs.methods import Method
from macs.metrics import ood_metrics
from macs.training.runs import Epoch


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
        accuracy = float((known.predictions == self.images.labels).mean())
        if self.outliers is None:
            return replace(epoch, validation_accuracy=accuracy)
        unknown = scores.ask(net, self.outliers, score, precision)
        auroc = ood_metrics(known.confidences, unknown.confidences).auroc
        return replace(epoch, validation_accuracy=accuracy, validation_auroc=auroc)


def validation_on(
    images: ImageSet | None, outliers: ImageSet | None, train: ImageSet, method: Method
) -> Validation | None:
    """The validation on these images, or an error if they do not fit the training; None if there are none."""
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
