"""ImageDetector: the part of a detector that does not depend on whether PyTorch or ONNX Runtime computes its network.

It judges images in memory, and any number of files in bounded memory: threads decode slightly ahead of the network.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core.console import timed
from macs.core.errors import MacsError
from macs.data.compatibility import same_classes, warn_of_guessing
from macs.data.conversion import is_loader, loaded_sets, require_order, to_images, to_sets
from macs.data.image_files import in_batches
from macs.data.imageset import ImageSet
from macs.data.prefetch import DECODERS, batch_at, batches_of, map_ahead
from macs.data.preparation import Preparation
from macs.detector.judging import BaseDetector, check_promise
from macs.detector.paths import Item, find_images
from macs.detector.verdicts import Verdict, Verdicts
from macs.evaluation.measurement import check_sets, measure
from macs.evaluation.protocol import Protocol
from macs.evaluation.results import Evaluation
from macs.metrics import FprRule, Reliability
from macs.predictions import Predictions, joined

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
