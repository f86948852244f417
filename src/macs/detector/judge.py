"""Judge: the part of a detector that does not depend on whether PyTorch or ONNX Runtime computes its network."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.answers import joined
from macs.core.console import timed
from macs.core.errors import MacsError
from macs.core.files import kind_of, user_path
from macs.data.fitness import same_classes, warn_of_guessing
from macs.data.imageset import ImageSet, as_array
from macs.data.pixels import Resized
from macs.data.preparation import Preparation
from macs.data.reading import batches_of
from macs.detector.calibration import Calibration, images_to_resolve
from macs.detector.verdicts import (
    RankedAnswers,
    Verdicts,
    control_false_discoveries,
    false_discovery_level,
    highest_discovery,
)
from macs.evaluation.measurement import check_sets, measure
from macs.evaluation.protocol import Protocol
from macs.evaluation.results import Evaluation
from macs.metrics import FprRule

if TYPE_CHECKING:
    from macs.detector.verdicts import Prediction

log = logging.getLogger(__name__)
Images = ImageSet | NDArray[np.uint8] | Any  # in any of the forms that `predict` lists
Ask = Callable[[NDArray[np.uint8]], RankedAnswers]  # raw pixels N x size x size x 3 -> one answer per image


class Judge:
    """Verdicts on images from a calibrated network; a subclass defines `asking`, which runs that network."""

    classes: tuple[str, ...]
    preparation: Preparation  # of pictures for the network
    calibration: Calibration | None

    def asking(self) -> AbstractContextManager[Ask]:
        """A context that gives a function from a batch of pixels to the network's answers."""
        raise NotImplementedError(f"{type(self).__name__} does not define `asking`")

    @property
    def calibrated(self) -> Calibration:
        """The calibration, or an error if there is none yet."""
        if self.calibration is None:
            raise MacsError("This detector has no threshold yet; use the one that .calibrate(images) returns.")
        return self.calibration

    @property
    def size(self) -> int:
        """Edge of the images that the network sees."""
        return self.preparation.size

    def predict(
        self,
        images: Images,
        *,
        threshold: float | None = None,
        fdr: float | None = None,
        progress: bool = False,
    ) -> Verdicts:
        """Class, confidence, p-value and verdict for each image.

        `images` is an ImageSet, a uint8 array N x H x W x 3 or H x W x 3, a PIL image, the path of a file or a folder,
        a list of images or of files, or a map-style dataset or DataLoader of PIL images. All are prepared as
        `preparation` says; only arrays of the network's size count as prepared.

        `threshold` overrides the calibrated one. With `fdr`, verdicts are made by p-values instead: of the images
        called OOD, the expected share that are in truth ID is at most `fdr`.
        """
        tau = self.thresholds(threshold)
        check_promise(self.calibrated, threshold, fdr)
        verdicts = self.judge(self.ask(prepared(images, self.preparation), progress), tau)
        if fdr is None:
            return verdicts
        is_ood = verdicts.p_values <= highest_discovery(verdicts.p_values, fdr)
        return Verdicts(verdicts.predictions, verdicts.confidences, verdicts.p_values, is_ood, self.classes)

    def predict_files(
        self, paths: str | Path | Iterable[str | Path], *, threshold: float | None = None, fdr: float | None = None
    ) -> "Iterator[Prediction]":
        """One row per image in files, folders, globs and .npy files; memory does not grow with their number.

        Rows come as they are computed. With `fdr` they come at the end, since it judges all images together.
        """
        from macs.detector.stream import predict_files

        check_promise(self.calibrated, threshold, fdr)
        rows = predict_files(self, paths, threshold)
        return rows if fdr is None else control_false_discoveries(rows, fdr)

    def evaluate(
        self,
        test: ImageSet,
        ood: Mapping[str, ImageSet],
        *,
        trials: int = 10,
        share: float = 0.2,
        seed: int = 0,
        fpr_rule: FprRule = "first",
        progress: bool = True,
    ) -> Evaluation:
        """Measure how well the confidences tell ID from OOD test images, as `macs.evaluate` does for a network."""
        protocol = Protocol(trials, share, seed, fpr_rule)
        self.check_fit(test, ood)
        known, *unknown = (self.ask(prepared(images, self.preparation), progress) for images in (test, *ood.values()))
        confidences = {name: answers.confidences for name, answers in zip(ood, unknown, strict=True)}
        correct = known.predictions == test.labels
        result = measure(test.name, correct, known.confidences, confidences, self.calibrated.score, protocol)
        warn_of_guessing(result.accuracy, len(test.classes), test.name)
        return result

    def check_fit(self, test: ImageSet, ood: Mapping[str, ImageSet]) -> None:
        """Refuse sets that cannot be measured, and ID images whose classes are not the detector's."""
        check_sets(test, ood)
        same_classes(test, self.classes, "the detector has")

    def thresholds(self, override: float | None = None) -> NDArray[np.float32]:
        """The threshold as a single number, or one number per class; `override` replaces all of them."""
        values = self.calibrated.values
        if override is None:
            return values
        if not isinstance(override, Real) or not abs(override) <= float(np.finfo(np.float32).max):
            raise MacsError(f"The threshold must be a number, not {override}.")
        return np.full_like(values, override)

    def judge(self, answers: RankedAnswers, thresholds: NDArray[np.float32]) -> Verdicts:
        """confidence >= tau is ID (MaCS paper, Eq. 2); in this form, a confidence that is NaN is OOD."""
        tau = thresholds[answers.predictions] if thresholds.ndim else thresholds
        is_ood = ~(answers.confidences >= tau)
        return Verdicts(answers.predictions, answers.confidences, answers.p_values, is_ood, self.classes)

    def ask(self, images: ImageSet, progress: bool = False) -> RankedAnswers:
        """The answers for a set of images that have the network's size, from one pass."""
        with timed(log, f"judging {images.name}, {len(images):,} images,"), self.asking() as ask:
            return joined(map(ask, batches_of(images, progress=progress))).checked(images.name)


def check_promise(record: Calibration, threshold: float | None, fdr: float | None) -> None:
    """Refuse a false discovery rate that this calibration cannot promise, or one together with a threshold."""
    if fdr is None:
        return
    false_discovery_level(fdr)
    if threshold is not None:
        raise MacsError("A threshold and a false discovery rate are two ways to decide; give one of them.")
    if not record.ranked:
        raise MacsError("This detector was saved without its calibration confidences; calibrate again for p-values.")
    if (fewest := min(record.ranked)) < (needed := images_to_resolve(Fraction(str(fdr)))):
        where = " predicted as each class" if record.per_class else ""
        raise MacsError(
            f"A false discovery rate of {fdr} takes at least {needed} calibration images{where}, but there are "
            f"{fewest}, so that no p-value is below {1 / (fewest + 1):.2g}; calibrate on more, or allow more."
        )


def prepared(images: Images, preparation: Preparation) -> ImageSet:
    """Images in any form as a set of squares of the network's size; an array of this size counts as prepared."""
    if isinstance(images, ImageSet):
        return images.resized(preparation)
    if pictures := _pictures(images, preparation):
        return pictures
    array = as_array(images, "The images")
    stack = array[None] if array.ndim == 3 else array
    if stack.dtype != np.uint8 or stack.ndim != 4 or stack.shape[3] != 3 or 0 in stack.shape:
        raise MacsError(
            f"A detector takes raw uint8 RGB pixels 0..255, N x H x W x 3 or H x W x 3, "
            f"not {array.dtype} of shape {array.shape}."
        )
    size = preparation.size
    return ImageSet("images", stack if stack.shape[1:3] == (size, size) else Resized(stack, preparation))


def _pictures(images: Any, preparation: Preparation) -> ImageSet | None:
    """The set of a path, a PIL image, a list of either, a DataLoader or its dataset; None for arrays."""
    from PIL import Image

    several = [images] if isinstance(images, str | Path | Image.Image) else images
    if isinstance(several, list | tuple):
        if several and all(isinstance(each, str | Path) for each in several):
            if len(several) == 1 and kind_of(user_path(several[0])) == "a folder":
                return ImageSet.from_folder(several[0], labelled=False, preparation=preparation)
            return ImageSet.from_files(several, preparation=preparation)
        dataset = several if several and all(isinstance(each, Image.Image) for each in several) else None
    elif hasattr(images, "sampler"):  # a DataLoader
        if type(images.sampler).__name__ != "SequentialSampler":
            raise MacsError("A DataLoader that shuffles or samples gives images in no fixed order; give its dataset.")
        dataset = images.dataset
    else:
        map_style = hasattr(images, "__getitem__") and not hasattr(images, "shape")
        dataset = images if map_style else None
    if dataset is None:
        return None
    return ImageSet.from_dataset(dataset, name="images", labelled=False, preparation=preparation)
