"""Detector: a classifier, a score and a threshold, which together decide whether an image is ID or OOD."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn

from macs import nets, scores
from macs.answers import Answers
from macs.core.devices import device_of, explained
from macs.core.errors import MacsError, first_line
from macs.data import ImageSet
from macs.data.fingerprint import same_pixels
from macs.data.fitness import few, same_classes, warn_of_guessing
from macs.data.imageset import require_images, require_sets
from macs.data.preparation import DEFAULT, Preparation
from macs.detector.calibration import Calibration, calibrate, share_to_keep
from macs.detector.choosing import Choice, candidate_names, choose
from macs.detector.judge import Ask, Judge
from macs.detector.label import wrong_names
from macs.detector.reference import Reference
from macs.detector.verdicts import RankedAnswers
from macs.inference import inference, outputs_of
from macs.scores import Score

if TYPE_CHECKING:
    from macs.detector.int8 import Quantised

log = logging.getLogger(__name__)

# A threshold must mean the same on every machine and in the exported file, so bf16 is never used.
PRECISION = "float32"


@dataclass(frozen=True, eq=False, init=False)
class Detector(Judge):
    """`calibrate` returns a new detector with a threshold, which everything else needs.

    The score is given by its name or as a `Score`. A score that is fitted to training images needs `fit` before
    `calibrate`. Without `classes`, the class names are those of the calibration images or, if they have none, numbers.
    """

    net: nn.Module
    score: Score
    classes: tuple[str, ...]
    recipe: Mapping[str, Any] | None  # the record of the network's training
    preparation: Preparation  # of pictures for the network; set by the calibration
    calibration: Calibration | None
    reference: Reference | None  # the confidences that p-values are computed from; None in files before version 4
    choice: Choice | None  # how the score was chosen, if macs chose it

    def __init__(
        self,
        net: nn.Module,
        score: Score | str = "msp",
        classes: tuple[str, ...] = (),
        recipe: Mapping[str, Any] | None = None,
        preparation: Preparation = DEFAULT,
        calibration: Calibration | None = None,
        reference: Reference | None = None,
        choice: Choice | None = None,
    ) -> None:
        nets.require_net(net)
        score = scores.get(score)
        if score.reads == "pixels":
            raise MacsError(
                f"{score!r} needs the gradient of the network, which a detector and its exported file do not compute; "
                "measure it with `macs evaluate`, and take another score for a detector."
            )
        score = scores.ready(score, net) if score.fitted else score
        values = (net, score, classes, recipe, preparation, calibration, reference, choice)
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        """One line: the fields of a network would fill a screen."""
        record = self.calibration
        state = f"keeps {record.keep:.4g} of {record.data}" if record else "not calibrated"
        return f"<Detector {nets.name_of(self.net)}, {self.score!r}, {state}>"

    def to(self, device: torch.device | str) -> Self:
        """Move network and score to a device, in place as torch does, and return the detector."""
        self.net.to(device)
        self.score.to(device)
        return self

    def fit(
        self,
        train: ImageSet | None = None,
        held_out: ImageSet | None = None,
        *,
        images: int = scores.LIMIT,
        seed: int = 0,
        progress: bool = False,
    ) -> "Detector":
        """A detector, not calibrated yet, whose score is fitted to `images` of the training images (0: all of them).

        `train` are ID training images, of which the seed draws some; they must not be those to calibrate on. A sum of
        scores is also standardised on `held_out`, ID images that are used for neither. A score of the logits learns
        nothing.
        """
        if self.score.fitted_to == "nothing":
            return self
        train, held_out = _id_images(train, held_out)
        known = scores.know(self.net, train, held_out, limit=images, seed=seed, precision=PRECISION, progress=progress)
        return replace(self, score=self.score.fit(known), calibration=None, reference=None)

    def choose(
        self,
        train: ImageSet | None,
        held_out: ImageSet,
        unknown: Mapping[str, ImageSet] | None = None,
        candidates: Mapping[str, Score] | None = None,
        *,
        images: int = scores.LIMIT,
        seed: int = 0,
        progress: bool = False,
    ) -> "Detector":
        """A detector, not calibrated yet, with the score that suits the network best, fitted; `choice` records how.

        The candidates are compared by how well they tell the held-out ID images from several kinds of unknown images,
        some made here, some given as `unknown`, which must not be test sets. Do not calibrate on the held-out images.
        The rule is in macs/detector/choosing.py. Without `candidates`, all scores and a few sums are compared.
        """
        _id_images(train, require_images(held_out, "held-out images"))
        held_out = nets.prepared_for(self.net, held_out)  # kinds of unknown images are made of these
        score, choice = choose(
            self.net,
            train,
            held_out,
            require_sets({} if unknown is None else unknown, "unknown images"),
            scores.get_all(candidate_names(), {}) if candidates is None else candidates,
            images=images,
            seed=seed,
            precision=PRECISION,
            progress=progress,
        )
        return replace(self, score=score, calibration=None, reference=None, choice=choice)

    def calibrate(
        self,
        validation: ImageSet,
        keep: float = 0.95,
        per_class: bool = False,
        outliers: Mapping[str, ImageSet] | None = None,
        check: ImageSet | None = None,
        progress: bool = False,
    ) -> "Detector":
        """A detector with a threshold that keeps at least the share `keep` of new ID images.

        `validation` are ID images that the network was not trained on. They need no labels; if they have some, the
        record contains the accuracy. It also contains the share of each set in `outliers` that would pass as ID and,
        for `check`, which are other ID images, the share that is kept and the share that was expected. `per_class`
        finds one threshold for each predicted class.
        """
        share_to_keep(keep)
        validation = nets.prepared_for(self.net, require_images(validation, "calibration images"))
        outliers = require_sets({} if outliers is None else outliers, "outliers")
        check = None if check is None else require_images(check, "images to check on")
        if not self.score.fitted:
            if self.score.needs("held-out images"):
                raise MacsError(
                    f"{self.score!r} has to be fitted to held-out ID images before it is calibrated on others; "
                    "calibrate the detector that .fit(train, held_out) returns."
                )
            if self.score.needs("training images"):
                raise MacsError(
                    f"{self.score!r} has to be fitted to ID training images before it is calibrated; calibrate the "
                    "detector that .fit(train) returns."
                )
            bound = self.score.fit(scores.last_layer(self.net, validation))
            return replace(self, score=bound).calibrate(validation, keep, per_class, outliers, check, progress)
        classes = self._class_names(validation)
        answers = self.ask(validation, progress)
        reference = Reference.of(answers, len(classes), per_class)
        record = calibrate(
            answers.confidences,
            answers.predictions,
            validation.labels,
            classes,
            keep=keep,
            per_class=per_class,
            score=scores.name_of(self.score),
            data=validation.name,
            ranked=reference.sizes,
        )
        warn_of_guessing(record.accuracy, len(classes), validation.name)
        preparation = nets.preparation_for(self.net, validation)
        detector = replace(self, classes=classes, preparation=preparation, calibration=record, reference=reference)
        if check is not None:
            verdicts = detector.predict(check, progress=progress)
            record = record.checked(verdicts.predictions, ~verdicts.is_ood)
        passing = {
            name: 1 - float(detector.predict(images, progress=progress).is_ood.mean())
            for name, images in outliers.items()
        }
        return replace(detector, calibration=replace(record, passing=passing))

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        features = self.score.reads == "features"
        if log.isEnabledFor(logging.INFO):
            log.info("%s runs %s", nets.name_of(self.net), explained(device_of(self.net), PRECISION))
        with inference(self.net, PRECISION, features) as run:
            yield lambda batch: self._ranked(scores.answer(self.score, run(batch)))

    def _ranked(self, answers: Answers) -> RankedAnswers:
        if self.reference is None:
            p_values = np.full(len(answers), np.nan, np.float32)
        else:
            p_values = self.reference.p_values(answers)
        return RankedAnswers(answers.predictions, answers.confidences, p_values)

    def save(self, path: str | Path) -> None:
        """Write everything into one .safetensors file."""
        from macs.detector.saving import save

        save(self, path)

    @classmethod
    def load(cls, path: str | Path, net: nn.Module | str | None = None, score: Score | str | None = None) -> "Detector":
        """Read a file that `save` wrote; no code from it is run.

        A network or a score of your own must be given, as an object or as "module:Class".
        """
        from macs.detector.saving import load

        return load(path, net, score)

    def export(self, path: str | Path) -> None:
        """Write one ONNX file: raw uint8 pixels in; label, confidence, p_value and is_ood out."""
        from macs.detector.export import export

        export(self, path)

    def export_int8(
        self,
        path: str | Path,
        images: ImageSet,
        ood: Mapping[str, ImageSet] | None = None,
        max_drop: float = 0.5,
        progress: bool = False,
    ) -> "Quantised":
        """Like `export`, in 8-bit integers; an error if accuracy, or AUROC on an OOD set, falls by too many points.

        `max_drop` points are allowed. `images` are labelled ID images that the network was not trained on. Some of them
        give the ranges of the integers; the others measure what 8 bits cost, and calibrate the 8-bit network.
        """
        from macs.detector.int8 import export_int8

        images = require_images(images, "images for int8")
        ood = require_sets({} if ood is None else ood, "OOD sets")
        return export_int8(self, path, images, ood, max_drop, progress)

    def _class_names(self, images: ImageSet) -> tuple[str, ...]:
        """The names of the network's classes; an error if the images have other classes."""
        outputs = count_outputs(self.net, images.size)
        names = tuple(self.classes) or images.classes or tuple(map(str, range(outputs)))
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


def _id_images(train: ImageSet | None, held_out: ImageSet | None) -> tuple[ImageSet | None, ImageSet | None]:
    """Training and held-out images, checked: they must be image sets, and not the same images."""
    if held_out is None:
        return require_images(train, "training images"), None
    held_out = require_images(held_out, "held-out images")
    if train is not None and same_pixels(require_images(train, "training images"), held_out):
        raise MacsError(f"{held_out.name} holds the training images; hold out others, which the network has not seen.")
    return train, held_out
