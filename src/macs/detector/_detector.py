"""Detector: a classifier, a score and a threshold, which together decide whether an image is ID or OOD."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
from torch import nn

from macs import nets, scores
from macs.core import html
from macs.core.devices import device_of, explained
from macs.core.errors import MacsError, first_line
from macs.core.settings import Span
from macs.data import ImageSet
from macs.data.compatibility import few, same_classes, warn_of_guessing
from macs.data.conversion import to_images, to_sets
from macs.data.preparation import DEFAULT, Preparation
from macs.data.spec import pixels_hash, same_pixels
from macs.detector.base import Ask, BaseDetector, Images
from macs.detector.calibration import Calibration, calibrate, share_to_keep
from macs.detector.metadata import wrong_names
from macs.detector.p_values import PValues
from macs.detector.publishing import OnTheHub
from macs.detector.score_selection import AUTO, Choice, candidate_names, choose
from macs.inference import inference, outputs_of
from macs.predictions import Predictions
from macs.scores import Score

if TYPE_CHECKING:
    from macs.detector.int8 import Quantised

log = logging.getLogger(__name__)

# A threshold must mean the same on every machine and in the exported file, so bf16 is never used.
PRECISION = "float32"
HELD_OUT = "held-out images"


@dataclass(eq=False, repr=False)
class Auto(Score):
    """A score that is still to be chosen among candidates, by default among all; `Detector(net, "auto")` has one."""

    fitted_to = "held-out images"
    reads = "features"
    candidates: Mapping[str, Score] | None = None
    max_cost: float | None = None  # microseconds per image beyond the network's own pass

    def __post_init__(self) -> None:
        nn.Module.__init__(self)

    @property
    def fitted(self) -> bool:
        return False

    @property
    def written(self) -> str:
        return AUTO


class Fitting(NamedTuple):
    """A `fit` without held-out images, which `calibrate` completes: it has the images to hold out."""

    train: ImageSet | None = None
    unknown: Mapping[str, ImageSet] = MappingProxyType({})
    images: int = scores.LIMIT
    seed: int = 0


@dataclass(eq=False, init=False, repr=False)
class Detector(OnTheHub, BaseDetector):
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
    preparation, calibration, p_values, choice
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
    ) -> None:
        nets.require_net(net)
        score = Auto() if isinstance(score, str) and score == AUTO else scores.get(score)
        if score.reads == "pixels":
            raise MacsError(
                f"{score!r} needs the gradient of the network, which a detector and its exported file do not compute; "
                "measure it with `macs evaluate`, and take another score for a detector."
            )
        self.net = net
        self.score = scores.ready(score, net) if score.fitted else score
        self.classes, self.recipe, self.preparation = classes, recipe, preparation
        self.calibration, self.p_values, self.choice = calibration, p_values, choice
        self._auto = score if isinstance(score, Auto) else None  # kept, so that another `fit` chooses again
        self._fitting: Fitting | None = None
        self._trained_on = ("", "")  # name and hash of the images that the score is fitted to

    def __repr__(self) -> str:
        """One line: the fields of a network would fill a screen."""
        record = self.calibration
        state = f"keeps {record.keep:.4g} of {record.data}" if record else "not calibrated"
        return f"<Detector {nets.name_of(self.net)}, {self.score!r}, {state}>"

    def _repr_html_(self) -> str:
        """What the detector is and what it promises, as a notebook shows it."""
        record = self.calibration
        facts: list[tuple[str, str]] = [
            ("network", nets.name_of(self.net)),
            ("score", repr(self.score)),
            ("classes", f"{len(self.classes)}: {few(self.classes)}" if self.classes else "of the calibration images"),
        ]
        if record is None:
            return html.table([], [*facts, ("threshold", "none yet: call .calibrate(images)")], "Detector")
        first = record.thresholds[0]
        tau = "one per predicted class" if record.per_class else f"{first.value:.6g}"
        facts += [
            ("images", self.preparation.describe()),
            ("calibrated on", f"{record.images:,} images of {record.data}"),
            ("threshold", tau),
            ("promise", f"keeps a new known image with a probability of at least {record.keep:.4g}"),
            *(("check", str(check)) for check in record.checks),
        ]
        return html.table([], facts, "Detector")

    def to(self, device: torch.device | str) -> Self:
        """Move network and score to a device, in place as torch does, and return the detector."""
        self.net.to(device)
        self.score.to(device)
        return self

    @property
    def held_out(self) -> int:
        """The number of ID images on which the score was chosen or standardised; 0 for most scores."""
        if self.choice is not None:
            return self.choice.images
        return int(self.score.images) if isinstance(self.score, scores.Combined) and self.score.fitted else 0

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
        fitting = Fitting(train, kinds, images, seed)
        if held_out is None and score.needs("held-out images"):
            self.score, self.calibration, self.p_values, self.choice = score, None, None, None
            self._fitting = fitting
            return self
        return self._become(
            self._fitted(fitting, None if held_out is None else self._images(held_out, HELD_OUT), progress)
        )

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
        check: Images | float = None,
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
        self._refuse_fitted_to(validation)
        if isinstance(check, int | float):
            share = Span(0, 1, open="most").hold("check, the share of images to hold back,", float(check))
            others, validation = validation.split(share) if share else (None, validation)
        else:
            others = None if check is None else self._images(check, "images to check on")
        ready, validation = self._ready(validation, progress)
        classes = ready._class_names(validation)
        predictions = ready.ask(validation, progress)
        p_values = PValues.of(predictions, len(classes), per_class)
        record = calibrate(
            predictions.confidence,
            predictions.index,
            validation.labels,
            classes,
            keep=keep,
            per_class=per_class,
            score=scores.name_of(ready.score),
            data=validation.name,
            ranked=p_values.sizes,
        )
        warn_of_guessing(record.accuracy, len(classes), validation.name)
        preparation = nets.preparation_for(self.net, validation)
        done = replace(ready, classes=classes, preparation=preparation, calibration=record, p_values=p_values)
        if others is not None:
            verdicts = done.predict(others, progress=progress)
            record = record.checked(verdicts.index, ~verdicts.is_ood)
        passing = {
            name: 1 - float(done.predict(images, progress=progress).is_ood.mean()) for name, images in sets.items()
        }
        done.calibration = replace(record, passing=passing)
        done._trained_on = ready._trained_on
        return self._become(done)

    def _become(self, done: "Detector") -> Self:
        """Take over what another detector has found out, once nothing can fail any more."""
        vars(self).update(vars(done) | {"_auto": done._auto or self._auto})
        return self

    def _images(self, given: Images, what: str) -> ImageSet:
        return to_images(given, what, nets.preparation_of(self.net))

    def _refuse_fitted_to(self, validation: ImageSet) -> None:
        """Refuse to calibrate on the training images of the score: they are nearer to themselves than new images."""
        train = None if self._fitting is None else self._fitting.train
        name, hashed = self._trained_on if train is None else (train.name, self._hash(train))
        if hashed and hashed == pixels_hash(validation):
            raise MacsError(
                f"{name} holds the images to calibrate on; fit {self.score.written} to the training images."
            )

    def _hash(self, images: ImageSet) -> str:
        return pixels_hash(nets.prepared_for(self.net, images))

    def _ready(self, validation: ImageSet, progress: bool) -> "tuple[Detector, ImageSet]":
        """This detector with its score fitted, and the images to calibrate on, which may be fewer than were given."""
        score = self.score
        if score.fitted and self._fitting is None:
            return self, validation
        fitting = self._fitting or Fitting()
        if score.needs("training images") and fitting.train is None:
            raise MacsError(
                f"{score!r} has to be fitted to ID training images before it is calibrated; call .fit(train) first."
            )
        if not score.needs("held-out images"):  # the last layer is all that it needs
            return replace(self, score=score.fit(scores.last_layer(self.net, validation))), validation
        held_out, rest = hold_out(validation, score.written if isinstance(score, Auto) else scores.name_of(score))
        return self._fitted(fitting, held_out, progress), rest

    def _fitted(self, fitting: Fitting, held_out: ImageSet | None, progress: bool) -> "Detector":
        """A copy of this detector, not calibrated, whose score is fitted or chosen."""
        train, score = fitting.train, self._auto or self.score
        if train is not None and held_out is not None and same_pixels(train, held_out):
            raise MacsError(
                f"{held_out.name} holds the training images; hold out others, which the network has not seen."
            )
        options: Any = {"seed": fitting.seed, "precision": PRECISION, "progress": progress}
        choice = None
        if isinstance(score, Auto):
            assert held_out is not None
            held_out = nets.prepared_for(self.net, held_out)  # kinds of unknown images are made of these
            candidates = scores.get_all(candidate_names(), {}) if score.candidates is None else score.candidates
            options |= {"max_cost": score.max_cost, "images": fitting.images}
            score, choice = choose(self.net, train, held_out, fitting.unknown, candidates, **options)
        else:
            score = score.fit(scores.know(self.net, train, held_out, limit=fitting.images, **options))
        done = replace(self, score=score, calibration=None, p_values=None, choice=choice)
        done._trained_on = ("", "") if train is None else (train.name, self._hash(train))
        return done

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        features = self.score.reads == "features"
        if log.isEnabledFor(logging.INFO):
            log.info("%s runs %s", nets.name_of(self.net), explained(device_of(self.net), PRECISION))
        with inference(self.net, PRECISION, features) as run:
            yield lambda batch: self._with_p_values(scores.answer(self.score, run(batch)))

    def _with_p_values(self, predictions: Predictions) -> Predictions:
        return predictions if self.p_values is None else replace(predictions, p_value=self.p_values(predictions))

    def save(self, path: str | Path) -> None:
        """Write everything into one .safetensors file.

        Parameters
        ----------
        path
            File to write, ending in .safetensors.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> macs.Detector(net).calibrate(macs.data.load("digits", "val")).save("d.safetensors")
        """
        from macs.detector.saving import save

        save(self, path)

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

    def export(self, path: str | Path) -> None:
        """Write one ONNX file: raw uint8 pixels in; index, confidence, p_value and is_ood out.

        Parameters
        ----------
        path
            File to write, ending in .onnx; `macs.Runtime` runs it without torch.

        Examples
        --------
        >>> import macs
        >>> detector = macs.Detector(macs.nets.build("wrn-10-1", classes=8)).calibrate(macs.data.load("digits", "val"))
        >>> detector.export("d.onnx")
        >>> macs.Runtime("d.onnx").predict(macs.data.load("digits", "test")).is_ood.shape
        (288,)
        """
        from macs.detector.export import export

        export(self, path)

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

    def _class_names(self, images: ImageSet) -> tuple[str, ...]:
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
        if wrong := wrong_names(names):
            raise MacsError(f"Cannot tell the classes apart: {wrong} ({few(names)}); give each its own name.")
        same_classes(images, names, "the detector was given")
        return names


def count_outputs(net: nn.Module, size: int) -> int:
    """The number of classes of a network, found by passing one black image through it."""
    try:
        (outputs,) = outputs_of(net, [torch.zeros(1, size, size, 3, dtype=torch.uint8)], precision=PRECISION)
    except RuntimeError as error:
        raise MacsError(f"{nets.name_of(net)} cannot take {size} x {size} images: {first_line(error)}.") from None
    return outputs.logits.shape[1]


def hold_out(images: ImageSet, score: str) -> tuple[ImageSet, ImageSet]:
    """Held-out images, on which a sum is standardised or a score is chosen, and the others, to calibrate on."""
    if len(images) < 4 * scores.FEWEST:
        raise MacsError(
            f"For {score}, a quarter of the images is held out, so at least {4 * scores.FEWEST} are needed, but "
            f"{images.name} has {len(images)}; give more."
        )
    return images.split(scores.held_out_of(len(images)))
