"""Detector: a classifier, a score and a threshold, which together decide whether an image is ID or OOD."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from macs import nets, scores
from macs.core.devices import device_of, explained
from macs.core.errors import MacsError, first_line
from macs.data import ImageSet
from macs.data.compatibility import few, same_classes
from macs.data.conversion import to_images, to_sets
from macs.data.preparation import DEFAULT, Preparation
from macs.data.spec import pixels_hash
from macs.detector.base import Ask, ImageDetector, Images
from macs.detector.calibration import Calibration, PValues, share_to_keep
from macs.detector.publishing import OnTheHub
from macs.detector.score_selection import Choice, candidate_names, choose
from macs.detector.scored import Auto, Fitting, ScoredDetector
from macs.evaluation.softmax import ScaledSoftmax
from macs.inference import Outputs, inference, outputs_of
from macs.metrics import Reliability, fit_temperature
from macs.predictions import Predictions, joined
from macs.scores import Known, Score

if TYPE_CHECKING:
    from macs.detector.int8 import Quantised

log = logging.getLogger(__name__)

# A threshold must mean the same on every machine and in the exported file, so bf16 is never used.
PRECISION = "float32"
HELD_OUT = "held-out images"


@dataclass(eq=False, init=False, repr=False)
class Detector(ImageDetector, ScoredDetector[ImageSet], OnTheHub):
    """A classifier, a score and a threshold, which together decide whether an image is ID or OOD.

    `fit` and `calibrate` change the detector and return it, as in scikit-learn; if they fail, it stays as it was.
    Everything else needs a calibrated detector, and a score that is fitted to training images needs `fit` first.

    Parameters
    ----------
    net
        Any nn.Module that takes float pixels N x 3 x H x W in [0, 1] and returns logits.
    score
        Name of a score, a sum such as "msp+vim", a `Score`, or "auto", which chooses a score for this network.
    classes
        Names of the classes; by default those of the calibration images or, if they have none, numbers.
    recipe
        Record of the network's training, if there is one.
    preparation, calibration, p_values, choice, temperature
        Results of `calibrate` and `fit`, as a detector file holds them.

    Examples
    --------
    >>> import macs
    >>> net = macs.nets.build("wrn-10-1", classes=8)
    >>> detector = macs.Detector(net, score="knn")
    >>> detector
    <Detector wrn-10-1, KNN() [unfitted], not calibrated>
    >>> detector.fit(macs.data.load("digits", "train"), images=100).calibrate(macs.data.load("digits", "val"))
    <Detector wrn-10-1, KNN(), keeps 0.95 of digits>
    """

    net: nn.Module
    score: Score
    classes: tuple[str, ...]
    recipe: Mapping[str, Any] | None  # the record of the network's training
    preparation: Preparation  # of pictures for the network; set by the calibration
    calibration: Calibration | None
    p_values: PValues | None  # with the confidences of the calibration images
    choice: Choice | None  # how the score was chosen, if macs chose it
    temperature: float | None  # of the class probabilities; None without labelled calibration images

    def __init__(
        self,
        net: nn.Module,
        score: Score | str = "msp",
        classes: tuple[str, ...] = (),
        recipe: Mapping[str, Any] | None = None,
        preparation: Preparation = DEFAULT,
        calibration: Calibration | None = None,
        p_values: PValues | None = None,
        choice: Choice | None = None,
        temperature: float | None = None,
    ) -> None:
        nets.require_net(net)
        self._start(score)
        self.net = net
        if self.score.fitted:
            self.score = scores.ready(self.score, net)
        self.classes, self.recipe, self.preparation = classes, recipe, preparation
        self.calibration, self.p_values, self.choice = calibration, p_values, choice
        self.temperature = temperature

    def __repr__(self) -> str:
        """One line: the fields of a network would fill a screen."""
        return f"<Detector {nets.name_of(self.net)}, {self.score!r}, {self._state}>"

    def _repr_html_(self) -> str:
        """What the detector is and what it promises, as a notebook shows it."""
        classes = f"{len(self.classes)}: {few(self.classes)}" if self.classes else "of the calibration images"
        prepared = [("images", self.preparation.describe())] if self.calibration else []
        return self._as_table("Detector", [("network", nets.name_of(self.net)), ("classes", classes), *prepared])

    def to(self, device: torch.device | str) -> Self:
        """Move network and score to a device, in place as torch does, and return the detector."""
        self.net.to(device)
        self.score.to(device)
        return self

    def fit(
        self,
        train: Images = None,
        held_out: Images = None,
        *,
        unknown: Mapping[str, Images] | None = None,
        images: int = scores.LIMIT,
        seed: int = 0,
        progress: bool = False,
    ) -> Self:
        """Fit the score to training images, in place; the detector has to be calibrated afterwards.

        A score of the logits has nothing to learn and stays as it is.

        Parameters
        ----------
        train
            ID training images, in any form that `predict` takes except paths; not those to calibrate on. "auto" does
            without them, too, and then has fewer scores to choose from.
        held_out
            Other ID images, on which a sum of scores is standardised and "auto" chooses a score. Without them,
            `calibrate` holds out a quarter of its images, at most 1,000, and completes the fit.
        unknown
            For "auto": sets of unknown images to choose on, by name, in addition to those that macs makes itself; never
            those to test on.
        images
            Number of training images to use, drawn at random; 0 means all.
        seed
            Seed of the draw.
        progress
            Show a progress bar.

        Returns
        -------
        Detector
            The detector itself.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.Detector(net, score="vim").fit(macs.data.load("digits", "train"), images=100)
        <Detector wrn-10-1, ViM(), not calibrated>
        """
        score = self._auto or self.score
        if unknown is not None and not isinstance(score, Auto):
            raise MacsError(
                f"Unknown images are for choosing a score, but this detector has {score!r}; leave them out."
            )
        if score.fitted_to == "nothing":
            return self
        if train is not None or not (isinstance(score, Auto) or held_out is not None):
            train = self._images(train, "training images")
        kinds = to_sets({} if unknown is None else unknown, "unknown images", nets.preparation_of(self.net))
        fitting = Fitting(train, kinds, images, seed, progress)
        return self._fit(fitting, None if held_out is None else self._images(held_out, HELD_OUT))

    def choose(
        self,
        train: Images,
        held_out: Images,
        unknown: Mapping[str, Images] | None = None,
        candidates: Mapping[str, Score] | None = None,
        *,
        max_cost: float | None = None,
        images: int = scores.LIMIT,
        seed: int = 0,
        progress: bool = False,
    ) -> Self:
        """Choose the score that suits the network best, and fit it, in place; `choice` records how.

        The candidates, by default all scores and a few sums, are compared by how well they tell the held-out ID images
        from several kinds of unknown images (macs/detector/score_selection.py). `Detector(net, "auto").fit` does the
        same.

        Parameters
        ----------
        train
            ID training images; with None, only scores that need none are compared.
        held_out
            Other ID images; do not calibrate on them.
        unknown
            Sets of unknown images to choose on, in addition to those that macs makes itself; never those to test on.
        candidates
            The scores to compare, by name.
        max_cost
            Leave out scores that take more microseconds per image than this, beyond the network's own pass.
        images, seed, progress
            As in `fit`.

        Returns
        -------
        Detector
            The detector itself.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> two = {name: macs.scores.get(name) for name in ("msp", "energy")}
        >>> detector = macs.Detector(net).choose(None, macs.data.load("digits", "val"), candidates=two)
        >>> detector.choice.score in two
        True
        """
        auto = replace(self, score=Auto(candidates, max_cost), calibration=None, p_values=None)
        held_out = self._images(held_out, HELD_OUT)
        return self._become(auto.fit(train, held_out, unknown=unknown, images=images, seed=seed, progress=progress))

    def calibrate(
        self,
        validation: Images,
        keep: float = 0.95,
        per_class: bool = False,
        outliers: Mapping[str, Images] | None = None,
        check: Any = None,
        progress: bool = False,
    ) -> Self:
        """Find the threshold that keeps at least the share `keep` of new ID images, in place.

        Parameters
        ----------
        validation
            ID images that the network was not trained on, in any form that `predict` takes except paths. They need no
            labels; if they have some, the record contains the accuracy. If the score still has to be standardised or
            chosen, a quarter of them, at most 1,000, is held out for that first.
        keep
            Share of new ID images to keep.
        per_class
            Find one threshold for each predicted class.
        outliers
            Sets of unknown images by name; the record contains the share of each that would pass as ID.
        check
            Other ID images, or the share of `validation` to hold back; the record contains the share that is kept and
            the share that was expected.
        progress
            Show a progress bar.

        Returns
        -------
        Detector
            The detector itself, whose `calibration` is the record.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> detector = macs.Detector(net)
        >>> detector.calibrate(macs.data.load("digits", "val"), keep=0.9)
        <Detector wrn-10-1, MSP(), keeps 0.9 of digits>
        >>> detector.calibration.images
        145
        """
        share_to_keep(keep)
        validation = nets.prepared_for(self.net, self._images(validation, "calibration images"))
        sets = to_sets({} if outliers is None else outliers, "outliers", nets.preparation_of(self.net))
        preparation = nets.preparation_for(self.net, validation)
        sets = {name: images.resized(preparation) for name, images in sets.items()}
        if check is not None and not isinstance(check, int | float):
            check = self._images(check, "images to check on").resized(preparation)
        return self._calibrate(validation, keep, per_class, sets, check, progress, preparation=preparation)

    def _images(self, given: Images, what: str) -> ImageSet:
        return to_images(given, what, nets.preparation_of(self.net))

    def _hash(self, images: ImageSet) -> str:
        return pixels_hash(nets.prepared_for(self.net, images))

    def _know(self, fitting: Fitting[ImageSet], held_out: ImageSet | None) -> Known:
        options: Any = {"limit": fitting.limit, "seed": fitting.seed, "progress": fitting.progress}
        return scores.know(self.net, fitting.train, held_out, precision=PRECISION, **options)

    def _last_layer(self, images: ImageSet) -> Known:
        return scores.last_layer(self.net, images)

    def _chosen(self, auto: Auto, fitting: Fitting[ImageSet], held_out: ImageSet) -> tuple[Score, Choice]:
        return choose(
            self.net,
            fitting.train,
            nets.prepared_for(self.net, held_out),  # kinds of unknown images are made of these
            fitting.unknown,
            scores.get_all(candidate_names(), {}) if auto.candidates is None else auto.candidates,
            max_cost=auto.max_cost,
            images=fitting.limit,
            seed=fitting.seed,
            precision=PRECISION,
            progress=fitting.progress,
        )

    def _asked(self, images: ImageSet, progress: bool) -> tuple[Predictions, dict[str, Any]]:
        """Return predictions and, if the images have labels, the temperature of class probabilities, from one pass."""
        logits = []
        features = self.score.reads == "features"

        def answered(outputs: Outputs) -> Predictions:
            logits.append(outputs.logits.cpu())
            return scores.answer(self.score, outputs)

        passed = outputs_of(self.net, images, features=features, precision=PRECISION, progress=progress)
        predictions = joined(map(answered, passed)).checked(images.name)
        if images.labels is None:
            return predictions, {"temperature": None}
        return predictions, {"temperature": fit_temperature(torch.cat(logits).numpy(), images.labels)}

    def probabilities(self, images: Images, *, progress: bool = False) -> NDArray[np.float32]:
        """Return the probability of each class for each image, which the verdict does not depend on.

        It is softmax(logits / T). The calibration found the temperature T that fits its labelled images best, so that
        of the predictions with a probability of 0.8 about 80% are right on ID images. Of unknown images it says
        nothing. Without labels, or if all predictions on them were right, T is 1.

        Parameters
        ----------
        images
            Images in any form that `predict` takes.
        progress
            Show a progress bar.

        Returns
        -------
        numpy.ndarray
            Probabilities, N x K, whose columns are `classes`.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> detector = macs.Detector(net).calibrate(macs.data.load("digits", "val"))
        >>> detector.probabilities(macs.data.load("digits", "test")).shape
        (288, 8)
        """
        self.calibrated  # noqa: B018 - an error if there is no calibration yet
        parts = [
            (outputs.logits / (self.temperature or 1.0)).softmax(dim=1).cpu().numpy()
            for each in self._sets(images)[0]
            for outputs in outputs_of(self.net, each, precision=PRECISION, progress=progress)
        ]
        return np.concatenate(parts)

    def reliability(self, test: ImageSet, progress: bool = False) -> Reliability | None:
        softmax = ScaledSoftmax(self.temperature, "the calibration images" if self.temperature else "")
        answers, _ = scores.ask_all(self.net, test, softmax.scores, PRECISION, progress)
        return softmax.reliability(answers, test)

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        features = self.score.reads == "features"
        if log.isEnabledFor(logging.INFO):
            log.info("%s runs %s", nets.name_of(self.net), explained(device_of(self.net), PRECISION))
        with inference(self.net, PRECISION, features) as run:
            yield lambda batch: self._with_p_values(scores.answer(self.score, run(batch)))

    @classmethod
    def from_run(cls, run: str | Path | None = None, **options: Any) -> "Detector":
        """Calibrate a detector of a finished run, as `macs calibrate` does.

        Parameters
        ----------
        run
            Folder of a finished run; without it, `net`, `checkpoint` and `images` are needed.
        options
            The command's options, with underscores: `score="auto"`, `keep=0.95`, `fit_on="photos/known"`.

        Returns
        -------
        Detector
            The calibrated detector.

        Examples
        --------
        >>> import macs
        >>> macs.nets.save(macs.nets.build("wrn-10-1", classes=8), "classifier.safetensors")
        >>> options = {"net": "wrn-10-1", "checkpoint": "classifier.safetensors", "images": "digits"}
        >>> macs.Detector.from_run(score="energy", keep=0.9, **options)
        <Detector wrn-10-1, Energy(), keeps 0.9 of digits (val)>
        """
        from macs.detector.from_run import detector_from_run

        return detector_from_run(run, **options)

    @classmethod
    def load(cls, path: str | Path, net: nn.Module | str | None = None, score: Score | str | None = None) -> "Detector":
        """Read a file that `save` wrote; no code from it is run.

        Parameters
        ----------
        path
            The file, or its address on the Hugging Face hub, hf://org/name.
        net, score
            A network or a score of your own, as an object or as "module:Class", if the file holds one.

        Returns
        -------
        Detector
            The calibrated detector.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.Detector(net).calibrate(macs.data.load("digits", "val")).save("d.safetensors")
        >>> macs.Detector.load("d.safetensors")
        <Detector wrn-10-1, MSP(), keeps 0.95 of digits>
        """
        from macs.detector.saving import read

        return read(path).load(net, score)

    def export_int8(
        self,
        path: str | Path,
        images: Images,
        ood: Mapping[str, Images] | None = None,
        max_drop: float = 0.5,
        progress: bool = False,
    ) -> "Quantised":
        """Like `export`, in 8-bit integers; an error if accuracy, or AUROC on an OOD set, falls by too many points.

        `max_drop` points are allowed. `images` are labelled ID images that the network was not trained on. Some of them
        give the ranges of the integers; the others measure what 8 bits cost, and calibrate the 8-bit network.
        """
        from macs.detector.int8 import export_int8

        images = self._images(images, "images for int8")
        ood = to_sets({} if ood is None else ood, "OOD sets", self.preparation)
        return export_int8(self, path, images, ood, max_drop, progress)

    def _names(self, images: ImageSet) -> tuple[str, ...]:
        """The names of the network's classes; an error if the images have other classes."""
        outputs = count_outputs(self.net, images.size)
        numbers = tuple(map(str, range(outputs)))
        numbered = images.classes == numbers[: len(images.classes)]  # of a tensor, the largest label may be missing
        names = tuple(self.classes) or (numbers if numbered else images.classes)
        if len(names) != outputs:
            whose = "the detector was given" if self.classes else f"{images.name} has"
            raise MacsError(
                f"The network tells {outputs} classes apart, but {whose} {len(names)} ({few(names)}); "
                "give the classes that it was trained with."
            )
        same_classes(images, names, "the detector was given")
        return names


def count_outputs(net: nn.Module, size: int) -> int:
    """The number of classes of a network, found by passing one black image through it."""
    try:
        (outputs,) = outputs_of(net, [torch.zeros(1, size, size, 3, dtype=torch.uint8)], precision=PRECISION)
    except RuntimeError as error:
        raise MacsError(f"{nets.name_of(net)} cannot take {size} x {size} images: {first_line(error)}.") from None
    return outputs.logits.shape[1]
