"""The base classes of detectors: what does not depend on whether PyTorch or ONNX Runtime computes the network.

BaseDetector makes verdicts of predictions, by thresholds or by p-values. ImageDetector judges images in memory, and any
number of files in bounded memory: threads decode slightly ahead of the network.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core.console import timed
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.data.batches import DECODERS, batch_at, batches_of, map_ahead
from macs.data.compatibility import same_classes, warn_of_guessing
from macs.data.conversion import is_loader, loaded_sets, require_order, to_images, to_sets
from macs.data.image_files import Item, find_images, in_batches
from macs.data.imageset import ImageSet
from macs.data.preparation import Preparation
from macs.detector.calibration import Calibration, images_to_resolve
from macs.evaluation.protocol import Protocol
from macs.evaluation.results import Evaluation, check_sets, measure
from macs.metrics import FprRule, Reliability
from macs.predictions import (
    NO_CLASS,
    Predictions,
    Verdict,
    Verdicts,
    control_false_discoveries,
    highest_discovery,
    joined,
)


class BaseDetector:
    """Classes and a calibration: all that it takes to make verdicts of predictions."""

    classes: tuple[str, ...]  # none if no class is predicted
    calibration: Calibration | None

    @property
    def calibrated(self) -> Calibration:
        """The calibration, or an error if there is none yet."""
        if self.calibration is None:
            raise MacsError("This detector has no threshold yet; call .calibrate(...) first.")
        return self.calibration

    def thresholds(self, override: float | None = None) -> NDArray[np.float32]:
        """The threshold as a single number, or one number per class; `override` replaces all of them."""
        values = self.calibrated.values
        if override is None:
            return values
        if not isinstance(override, Real) or not abs(override) <= float(np.finfo(np.float32).max):
            raise MacsError(f"The threshold must be a number, not {override}.")
        return np.full_like(values, override)

    def predict_files(
        self,
        paths: str | Path | Iterable[str | Path],
        *,
        threshold: float | None = None,
        fdr: float | None = None,
        on_row: Callable[[Verdict], Any] = lambda row: None,
    ) -> Iterator[Verdict]:
        """Judge what is in files; memory does not grow with their number. A file that cannot be read gives its reason.

        Files are those of images, folders, globs and .npy files of pixels; for a detector of rows, .npz, .npy, .parquet
        and .csv files of features or logits. Verdicts come as they are computed. With `fdr` they come at the end, since
        it judges all together; `on_row` is called with each as it is computed.
        """
        if not isinstance(paths, str | Path | Iterable):
            raise MacsError(f"predict_files takes a path or a list of paths, not a {type(paths).__name__}.")
        check_promise(self.calibrated, threshold, fdr)
        rows = told(self._judge_files(paths, self.thresholds(threshold)), on_row)
        return rows if fdr is None else control_false_discoveries(rows, fdr)

    def _judge_files(
        self, paths: str | Path | Iterable[str | Path], thresholds: NDArray[np.float32]
    ) -> Iterator[Verdict]:
        """Yield one verdict per image or row, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not define `_judge_files`")

    def judge(
        self, predictions: Predictions, thresholds: NDArray[np.float32], reasons: Mapping[int, str] | None = None
    ) -> Verdicts:
        """confidence >= tau is ID (MaCS paper, Eq. 2); in this form, a confidence that is NaN is OOD.

        `reasons` says why a row could not be judged, by its position.
        """
        index, confidence = predictions.index, predictions.confidence
        tau = thresholds[index] if thresholds.ndim else np.full(len(index), thresholds, np.float32)
        if thresholds.ndim:
            tau = np.where(index == NO_CLASS, np.float32(np.nan), tau)
        is_ood = ~(confidence >= tau)
        return Verdicts(
            index,
            confidence,
            predictions.p_value,
            is_ood=is_ood,
            classes=self.classes,
            threshold=tau,
            reasons=reasons or {},
        )

    def decided(self, verdicts: Verdicts, fdr: float | None) -> Verdicts:
        """The same verdicts, or those that p-values give at a false discovery rate."""
        if fdr is None:
            return verdicts
        judged = np.ones(len(verdicts), bool)
        judged[[*verdicts.reasons]] = False
        highest = highest_discovery(verdicts.p_value[judged], fdr)
        is_ood = (verdicts.p_value <= highest) | ~judged
        return replace(verdicts, is_ood=is_ood, threshold=np.full_like(verdicts.threshold, np.nan))


def told(rows: Iterable[Verdict], on_row: Callable[[Verdict], Any]) -> Iterator[Verdict]:
    """Yield verdicts, and call a function with each before."""
    for row in rows:
        on_row(row)
        yield row


def check_promise(record: Calibration, threshold: float | None, fdr: float | None) -> None:
    """Refuse a false discovery rate that this calibration cannot promise, or one together with a threshold."""
    if fdr is None:
        return
    Span(0, 1, open="both").hold("The false discovery rate", fdr)
    if threshold is not None:
        raise MacsError("A threshold and a false discovery rate are two ways to decide; give one of them.")
    if (fewest := min(record.ranked)) < (needed := images_to_resolve(Fraction(str(fdr)))):
        where = " predicted as each class" if record.per_class else ""
        raise MacsError(
            f"A false discovery rate of {fdr} takes at least {needed} calibration {record.unit}{where}, but there are "
            f"{fewest}, so that no p-value is below {1 / (fewest + 1):.2g}; calibrate on more, or allow more."
        )


log = logging.getLogger(__name__)
Images = ImageSet | NDArray[np.uint8] | Any  # in any of the forms that `predict` lists
Ask = Callable[[NDArray[np.uint8]], Predictions]  # raw pixels N x size x size x 3 -> one prediction per image
AHEAD = 2  # batches that are decoded in advance


class ImageDetector(BaseDetector):
    """Verdicts on images from a calibrated network; a subclass defines `asking`, which runs that network."""

    preparation: Preparation  # of pictures for the network

    def asking(self) -> AbstractContextManager[Ask]:
        """A context that gives a function from a batch of pixels to the network's answers."""
        raise NotImplementedError(f"{type(self).__name__} does not define `asking`")

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
        """Judge images: predicted class, confidence, p-value and verdict for each. `detector(images)` does the same.

        Parameters
        ----------
        images
            An ImageSet; an array or a tensor, either uint8, N x H x W x 3 or N x 3 x H x W, or float in [0, 1],
            N x 3 x H x W; a PIL image; the path of a file or of a folder; a list of these; a map-style dataset; or a
            torch DataLoader that does not shuffle, which is read batch by batch. All are prepared as the network
            expects them; only arrays and tensors of the network's size count as prepared.
        threshold
            A threshold in place of the calibrated one.
        fdr
            Decide by p-values instead: of the images called OOD, the expected share that are in truth ID is at most
            `fdr`.
        progress
            Show a progress bar.

        Returns
        -------
        Verdicts
            One verdict per image, in order.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> detector = macs.Detector(net).calibrate(macs.data.load("digits", "val"))
        >>> verdicts = detector.predict(macs.data.load("digits-textures", "test"))
        >>> verdicts.is_ood.shape == verdicts.p_value.shape == (len(verdicts),)
        True
        """
        tau = self.thresholds(threshold)
        check_promise(self.calibrated, threshold, fdr)
        return self.decided(self.judge(self._ask_sets(*self._sets(images), progress), tau), fdr)

    def __call__(self, images: Images) -> Verdicts:
        """Judge images, as `predict` does."""
        return self.predict(images)

    def _judge_files(
        self, paths: str | Path | Iterable[str | Path], thresholds: NDArray[np.float32]
    ) -> Iterator[Verdict]:
        return self._rows(find_images(paths), thresholds)

    def predict_items(self, items: Iterable[Item], threshold: float | None = None) -> Iterator[Verdict]:
        """Return one row per image, in order; a mistake in the threshold is raised before the first row."""
        return self._rows(items, self.thresholds(threshold))

    def _rows(self, items: Iterable[Item], thresholds: NDArray[np.float32]) -> Iterator[Verdict]:
        log.info("%d threads decode pictures", DECODERS.workers)
        with self.asking() as ask:
            for batch in in_batches(decoded(items, self.preparation), batch_at(self.size)):
                pixels = [picture.pixels for picture in batch if picture.pixels is not None]
                rows: Iterator[Verdict] = iter(())
                if pixels:
                    names = (picture.name for picture in batch if picture.pixels is not None)
                    rows = self.judge(ask(np.stack(pixels)), thresholds).rows(names)
                for picture in batch:
                    yield next(rows) if picture.pixels is not None else Verdict(picture.name, reason=picture.reason)

    def evaluate(
        self,
        test: Images,
        ood: Mapping[str, Images],
        *,
        trials: int = 10,
        share: float = 0.2,
        seed: int = 0,
        fpr_rule: FprRule = "first",
        progress: bool = True,
    ) -> Evaluation:
        """Measure how well the confidences tell ID from OOD test images, as `macs.evaluate` does for a network.

        Parameters
        ----------
        test
            ID test images with labels, in any form that `predict` takes except paths.
        ood
            Sets of unknown images, by name.
        trials, share, seed, fpr_rule, progress
            As in `macs.evaluate`.

        Returns
        -------
        Evaluation
            The accuracy, and the metrics of each OOD set; printed, it is a table.

        Examples
        --------
        >>> import macs
        >>> detector = macs.Detector(macs.nets.build("wrn-10-1", classes=8)).calibrate(macs.data.load("digits", "val"))
        >>> test, textures = macs.data.load("digits", "test"), macs.data.load("digits-textures", "test")
        >>> detector.evaluate(test, {"textures": textures}, progress=False).sets[0].images
        600
        """
        protocol = Protocol(trials, share, seed, fpr_rule)
        test = to_images(test, "ID test images", self.preparation)
        ood = to_sets(ood, "OOD sets", self.preparation)
        self.check_fit(test, ood)
        known, *unknown = (self.ask(images.resized(self.preparation), progress) for images in (test, *ood.values()))
        confidences = {name: answers.confidence for name, answers in zip(ood, unknown, strict=True)}
        correct = known.index == test.labels
        reliability = self.reliability(test.resized(self.preparation), progress)
        score = self.calibrated.score
        result = measure(test.name, correct, known.confidence, confidences, score, protocol, reliability)
        warn_of_guessing(result.accuracy, len(test.classes), test.name)
        return result

    def reliability(self, test: ImageSet, progress: bool = False) -> Reliability | None:
        """Measure how honest the class probabilities are on ID test images; None where only verdicts are known."""
        return None

    def check_fit(self, test: ImageSet, ood: Mapping[str, ImageSet]) -> None:
        """Refuse sets that cannot be measured, and ID images whose classes are not the detector's."""
        check_sets(test, ood)
        same_classes(test, self.classes, "the detector has")

    def ask(self, images: ImageSet, progress: bool = False) -> Predictions:
        """Return the predictions for a set of images that have the network's size, from one pass."""
        return self._ask_sets([images], images.name, progress)

    def _ask_sets(self, sets: Iterable[ImageSet], name: str, progress: bool) -> Predictions:
        with timed(log, f"judging {name}"), self.asking() as ask:
            answers = [ask(batch) for images in sets for batch in batches_of(images, progress=progress)]
        if not answers:
            raise MacsError(f"{name} gives no images; check its dataset.")
        return joined(answers).checked(name)

    def _sets(self, images: Images) -> tuple[Iterable[ImageSet], str]:
        """Images in any form as sets of the network's size, and their name; a loader is read batch by batch."""
        if not is_loader(images):
            made = to_images(images, "images", self.preparation, labelled=False, paths=True).resized(self.preparation)
            return [made], made.name
        require_order(images)
        sets = loaded_sets(images, "images", self.preparation, labelled=False)
        return (each.resized(self.preparation) for each in sets), "the DataLoader"


class Picture(NamedTuple):
    """An image file's pixels, or the reason why it cannot be read."""

    name: str
    pixels: NDArray[np.uint8] | None
    reason: str = ""


def decoded(items: Iterable[Item], preparation: Preparation) -> Iterator[Picture]:
    """Yield the images in order; each is decoded as its own task, so that large ones use every core."""

    def decode(item: Item) -> Picture:
        try:
            return Picture(item.name, item.read(preparation))
        except MacsError as error:
            return Picture(item.name, None, str(error))

    return map_ahead(decode, items, threads=DECODERS.workers, ahead=AHEAD * batch_at(preparation.size))
