"""ScoredDetector: a fitted score with thresholds and p-values, which judges the outputs of a classifier.

`Detector` adds a network and a Preparation, which give these outputs for images; `FeatureDetector` takes the outputs
themselves. The order of steps is here: what is held out, when a score is fitted or chosen, and how it is calibrated.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from macs import scores
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.core.text import html_table
from macs.data.compatibility import few, warn_of_guessing
from macs.detector.base import BaseDetector
from macs.detector.calibration import IMAGES, PValues, calibrate
from macs.detector.metadata import wrong_names
from macs.detector.score_selection import AUTO, Choice
from macs.predictions import Predictions
from macs.scores import Known, Score


class Inputs(Protocol):
    """What can be calibrated on: an ImageSet, or Rows of a classifier's outputs."""

    @property
    def name(self) -> str: ...

    @property
    def labels(self) -> NDArray[np.int64] | None: ...

    def __len__(self) -> int: ...

    def split(self, first: float | int, seed: int = 0) -> tuple[Self, Self]:
        """Two sets drawn at random without overlap; `first` is the size of the first one, or its share."""
        ...


I = TypeVar("I", bound=Inputs)  # noqa: E741 - I for inputs: images or rows


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


class Fitting(NamedTuple, Generic[I]):
    """A `fit` without held-out images, which `calibrate` completes: it has the images to hold out."""

    train: I | None = None
    unknown: Mapping[str, I] = {}
    limit: int = scores.LIMIT
    seed: int = 0
    progress: bool = False


class ScoredDetector(BaseDetector, Generic[I]):
    """The steps of fitting and calibrating; a subclass says how outputs come about."""

    score: Score
    p_values: PValues | None  # with the confidences of the calibration images
    choice: Choice | None  # how the score was chosen, if macs chose it
    unit = IMAGES  # what is judged, in the plural, for messages

    def _start(self, score: Score | str) -> None:
        """Take a score that is fitted, to be fitted or, for "auto", to be chosen."""
        score = Auto() if isinstance(score, str) and score == AUTO else scores.get(score)
        if score.reads == "pixels":
            raise MacsError(
                f"{score!r} needs the gradient of the network, which a detector and its exported file do not compute; "
                "measure it with `macs evaluate`, and take another score for a detector."
            )
        self.score = score
        self._auto = score if isinstance(score, Auto) else None  # kept, so that another `fit` chooses again
        self._fitting: Fitting[I] | None = None
        self._trained_on = ("", "")  # name and hash of the images that the score is fitted to

    @property
    def _state(self) -> str:
        record = self.calibration
        return f"keeps {record.keep:.4g} of {record.data}" if record else "not calibrated"

    def _as_table(self, caption: str, facts: Sequence[tuple[str, str]] = ()) -> str:
        """These facts, the score, the threshold and its promise, as a notebook shows them."""
        facts, record = [*facts, ("score", repr(self.score))], self.calibration
        if record is None:
            return html_table([], [*facts, ("threshold", f"none yet: call .calibrate({self.unit})")], caption)
        promise = f"keeps a new known {self.unit[:-1]} with a probability of at least {record.keep:.4g}"
        facts += [
            ("calibrated on", f"{record.images:,} {self.unit} of {record.data}"),
            ("threshold", "one per predicted class" if record.per_class else f"{record.thresholds[0].value:.6g}"),
            ("promise", promise),
            *(("check", str(check)) for check in record.checks),
        ]
        return html_table([], facts, caption)

    def save(self, path: str | Path) -> None:
        """Write everything into one .safetensors file, which `load` reads.

        Parameters
        ----------
        path
            File to write, ending in .safetensors.

        Examples
        --------
        >>> import macs, numpy as np
        >>> logits = np.random.default_rng(0).normal(size=(300, 5))
        >>> macs.FeatureDetector("energy").calibrate(logits=logits).save("d.safetensors")
        """
        from macs.detector.saving import save

        save(cast("Any", self), path)

    def export(self, path: str | Path) -> None:
        """Write one ONNX file, which `macs.Runtime` or, for rows, `macs.FeatureRuntime` runs without torch.

        It takes raw uint8 pixels or, for rows, their arrays in float32, and gives index, confidence, p_value and
        is_ood.

        Parameters
        ----------
        path
            File to write, ending in .onnx.

        Examples
        --------
        >>> import macs
        >>> detector = macs.Detector(macs.nets.build("wrn-10-1", classes=8)).calibrate(macs.data.load("digits", "val"))
        >>> detector.export("d.onnx")
        >>> macs.Runtime("d.onnx").predict(macs.data.load("digits", "test")).is_ood.shape
        (288,)
        """
        from macs.detector.export import export

        export(cast("Any", self), path)

    @abstractmethod
    def ask(self, images: I, progress: bool = False) -> Predictions:
        """Return the predictions for all images."""

    @abstractmethod
    def _know(self, fitting: Fitting[I], held_out: I | None) -> Known:
        """What the score is fitted to: outputs for the training images, and for held-out ones."""

    @abstractmethod
    def _last_layer(self, images: I) -> Known:
        """The last layer alone."""

    @abstractmethod
    def _chosen(self, auto: Auto, fitting: Fitting[I], held_out: I) -> tuple[Score, Choice]:
        """The score that suits best, fitted, and the record of the choice."""

    @abstractmethod
    def _names(self, images: I) -> tuple[str, ...]:
        """The names of the classes, which need not be distinct; an error if the images have others."""

    @abstractmethod
    def _hash(self, images: I) -> str:
        """A hash that is equal for the same images in the same order."""

    @property
    def held_out(self) -> int:
        """The number of ID images on which the score was chosen or standardised; 0 for most scores."""
        if self.choice is not None:
            return self.choice.images
        return int(self.score.images) if isinstance(self.score, scores.Combined) and self.score.fitted else 0

    def _fit(self, fitting: Fitting[I], held_out: I | None) -> Self:
        """Fit or choose the score in place; without held-out images that it needs, leave this to `calibrate`."""
        score = self._auto or self.score
        if held_out is None and score.needs("held-out images"):
            self.score, self.calibration, self.p_values, self.choice = score, None, None, None
            self._fitting = fitting
            return self
        return self._become(self._fitted(fitting, held_out))

    def _asked(self, given: I, progress: bool) -> tuple[Predictions, dict[str, Any]]:
        """Return the predictions for calibration data, and further fields of the detector that the same pass gives."""
        return self.ask(given, progress), {}

    def _calibrate(
        self,
        validation: I,
        keep: float,
        per_class: bool,
        outliers: Mapping[str, I],
        check: I | float | None,
        progress: bool,
        **own: Any,
    ) -> Self:
        """Find the threshold in place; `own` are further fields of the calibrated detector."""
        self._refuse_fitted_to(validation)
        others: I | None
        if isinstance(check, int | float):
            share = Span(0, 1, open="most").hold(f"check, the share of {self.unit} to hold back,", float(check))
            others, validation = validation.split(share) if share else (None, validation)
        else:
            others = check
        ready, validation = self._ready(validation, progress)
        classes = ready._names(validation)
        if wrong := wrong_names(classes):
            raise MacsError(f"Cannot tell the classes apart: {wrong} ({few(classes)}); give each its own name.")
        predictions, found = ready._asked(validation, progress)
        p_values = PValues.of(predictions, len(classes), per_class)
        record = calibrate(
            predictions.confidence,
            predictions.index,
            validation.labels if classes else None,
            classes,
            keep=keep,
            per_class=per_class,
            score=scores.name_of(ready.score),
            data=validation.name,
            ranked=p_values.sizes,
            unit=self.unit,
        )
        warn_of_guessing(record.accuracy, len(classes), validation.name)
        done = ready._with(classes=classes, calibration=record, p_values=p_values, **own, **found)
        done._trained_on = ready._trained_on
        tau = done.thresholds()
        if others is not None:
            verdicts = done.judge(done.ask(others, progress), tau)
            record = record.checked(verdicts.index, ~verdicts.is_ood)
        passing = {
            name: 1 - float(done.judge(done.ask(images, progress), tau).is_ood.mean())
            for name, images in outliers.items()
        }
        done.calibration = replace(record, passing=passing)
        return self._become(done)

    def _with(self, **changes: Any) -> Self:
        """A copy with other values of some fields."""
        return cast("Self", replace(cast("Any", self), **changes))

    def _become(self, done: Self) -> Self:
        """Take over what another detector has found out, once nothing can fail any more."""
        vars(self).update(vars(done) | {"_auto": done._auto or self._auto})
        return self

    def _refuse_fitted_to(self, validation: I) -> None:
        """Refuse to calibrate on the training images of the score: they are nearer to themselves than new images."""
        train = None if self._fitting is None else self._fitting.train
        name, hashed = self._trained_on if train is None else (train.name, self._hash(train))
        if hashed and hashed == self._hash(validation):
            raise MacsError(
                f"{name} holds the {self.unit} to calibrate on; fit {self.score.written} to the training {self.unit}."
            )

    def _ready(self, validation: I, progress: bool) -> tuple[Self, I]:
        """This detector with its score fitted, and the images to calibrate on, which may be fewer than were given."""
        score = self.score
        if score.fitted and self._fitting is None:
            return self, validation
        fitting = self._fitting or Fitting()
        if score.needs("training images") and fitting.train is None:
            raise MacsError(
                f"{score!r} has to be fitted to ID training {self.unit} before it is calibrated; call "
                f".fit({'train' if self.unit == IMAGES else 'features'}) first."
            )
        if not score.needs("held-out images"):  # the last layer is all that it needs
            return self._with(score=score.fit(self._last_layer(validation))), validation
        name = score.written if isinstance(score, Auto) else scores.name_of(score)
        held_out, rest = hold_out(validation, name, self.unit)
        return self._fitted(fitting._replace(progress=progress), held_out), rest

    def _fitted(self, fitting: Fitting[I], held_out: I | None) -> Self:
        """A copy of this detector, not calibrated, whose score is fitted or chosen."""
        train, score = fitting.train, self._auto or self.score
        hashed = "" if train is None else self._hash(train)
        if held_out is not None and hashed == self._hash(held_out):
            raise MacsError(
                f"{held_out.name} holds the training {self.unit}; hold out others, which the network has not seen."
            )
        choice = None
        if isinstance(score, Auto):
            assert held_out is not None  # since it needs them
            score, choice = self._chosen(score, fitting, held_out)
        else:
            score = score.fit(self._know(fitting, held_out))
        done = self._with(score=score, calibration=None, p_values=None, choice=choice)
        done._trained_on = ("", "") if train is None else (train.name, hashed)
        return done

    def _with_p_values(self, predictions: Predictions) -> Predictions:
        return predictions if self.p_values is None else replace(predictions, p_value=self.p_values(predictions))


def hold_out(images: I, score: str, unit: str = IMAGES) -> tuple[I, I]:
    """Held-out images, on which a sum is standardised or a score is chosen, and the others, to calibrate on."""
    if len(images) < 4 * scores.FEWEST:
        raise MacsError(
            f"For {score}, a quarter of the {unit} is held out, so at least {4 * scores.FEWEST} are needed, but "
            f"{images.name} has {len(images)}; give more, or name another score, such as knn."
        )
    return images.split(scores.held_out_of(len(images)))
