"""FeatureDetector: a score and a threshold for the outputs of any model: logits, probabilities or features."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macs import scores
from macs.core.errors import MacsError
from macs.data.compatibility import few
from macs.detector.calibration import ROWS, Calibration, PValues, share_to_keep
from macs.detector.row_detector import RowDetector
from macs.detector.rows import Columns, Rows, by_name, matrix, plain_array
from macs.detector.score_selection import Choice
from macs.detector.scored import Auto, Fitting, ScoredDetector
from macs.inference import Outputs
from macs.predictions import Predictions
from macs.scores import Known, Score
from macs.scores._passes import negative_share

AGREE = 0.02  # how far given logits may be from those of the head, as a share of their spread: float16 is nearer

SMALLEST = float(np.finfo(np.float32).tiny)  # probability whose logarithm is taken
SAME = 1e-4  # a confidence that is 0 but for rounding


@dataclass(eq=False, init=False, repr=False)
class FeatureDetector(RowDetector, ScoredDetector[Rows]):
    """A score and a threshold, which decide for rows of logits or features of any model whether they are ID or OOD.

    `fit` and `calibrate` change the detector and return it, as in scikit-learn; if they fail, it stays as it was. A
    score that learns from training rows needs `fit` first. All computation is in float32.

    Parameters
    ----------
    score
        Name of a score, a sum such as "energy+knn", or a `Score`.
    head
        Weights and bias of the model's last linear layer, `(W, b)` with W of K x D. With it, logits are computed from
        the features, and scores that use the layer can be fitted.
    classes
        Names of the classes in the order of the logits; by default numbers.
    columns, calibration, p_values, choice
        Results of `fit` and `calibrate`, as a detector file holds them.

    Examples
    --------
    >>> import macs, numpy as np
    >>> random = np.random.default_rng(0)
    >>> features, more, new = random.normal(3, size=(3, 500, 16))
    >>> detector = macs.FeatureDetector("knn").fit(features).calibrate(more, keep=0.9)
    >>> detector
    <FeatureDetector KNN(), keeps 0.9 of calibration data>
    >>> bool(detector.predict(-new).is_ood.all())
    True
    """

    score: Score
    head: tuple[Tensor, Tensor] | None  # K x D and K, in float32
    classes: tuple[str, ...]  # none if no class is predicted
    columns: Columns | None  # what it was fitted to or calibrated on
    calibration: Calibration | None
    p_values: PValues | None
    choice: Choice | None
    unit = ROWS
    device = torch.device("cpu")

    def __init__(
        self,
        score: Score | str = "energy",
        head: Any = None,
        classes: Sequence[str] = (),
        columns: Columns | None = None,
        calibration: Calibration | None = None,
        p_values: PValues | None = None,
        choice: Choice | None = None,
    ) -> None:
        self._start(score)
        if self._auto is not None:
            raise MacsError("auto chooses among scores by looking at images; name a score for features and logits.")
        self.head = None if head is None else linear_head(head)
        self.classes, self.columns = tuple(map(str, classes)), columns
        self.calibration, self.p_values, self.choice = calibration, p_values, choice

    def __repr__(self) -> str:
        return f"<FeatureDetector {self.score!r}, {self._state}>"

    def _repr_html_(self) -> str:
        """What the detector is and what it promises, as a notebook shows it."""
        return self._as_table("FeatureDetector", [("classes", few(self.classes))] if self.classes else [])

    def to(self, device: torch.device | str) -> Self:
        """Move score and head to a device, in place as torch does, and return the detector."""
        self.score.to(device)
        self.device = torch.device(device)
        self.head = None if self.head is None else (self.head[0].to(device), self.head[1].to(device))
        return self

    def _with(self, **changes: Any) -> Self:
        """A copy with other values of some fields, on the same device: a new detector takes its head to the CPU."""
        return super()._with(**changes).to(self.device)

    def fit(
        self,
        features: Any = None,
        *,
        logits: Any = None,
        probabilities: Any = None,
        labels: Any = None,
        held_out: Any = None,
        rows: int = scores.LIMIT,
        seed: int = 0,
    ) -> Self:
        """Fit the score to training rows, in place; the detector has to be calibrated afterwards, on other rows.

        A score of the logits has nothing to learn and stays as it is.

        Parameters
        ----------
        features, logits, probabilities
            ID training rows, N x D and N x K: numpy arrays, torch tensors or pandas frames. Which of them a score needs
            is in docs/features.md. In place of `features`, a mapping of these names to arrays will do.
        labels
            N numbers or names of classes, for the scores that are fitted class by class.
        held_out
            Other ID rows, on which a sum of scores is standardised, as a mapping of these names to arrays or as an
            array of features. Without them, `calibrate` holds out a quarter of its rows, at most 1,000.
        rows
            Number of training rows to use, drawn at random; 0 means all.
        seed
            Seed of the draw.

        Returns
        -------
        FeatureDetector
            The detector itself.

        Examples
        --------
        >>> import macs, numpy as np
        >>> random = np.random.default_rng(0)
        >>> features, labels = random.normal(size=(200, 8)), random.integers(3, size=200)
        >>> macs.FeatureDetector("mahalanobis").fit(features, labels=labels)
        <FeatureDetector Mahalanobis(), not calibrated>
        """
        given = Rows.of(
            features,
            logits=logits,
            probabilities=probabilities,
            labels=labels,
            classes=self.classes,
            name="training data",
        )
        if rows < 0:
            raise MacsError(f"The number of training rows must be 0 (for all) or more, not {rows}.")
        ready = self._accepting(given)
        train = ready._usable(given, "to fit")
        other = None if held_out is None else ready._usable(ready._rows(held_out, "held-out data"), "to hold out")
        if ready.score.fitted_to != "nothing":
            ready._fit(Fitting(train, {}, rows, seed), other)
        return self._become(ready)

    def calibrate(
        self,
        features: Any = None,
        *,
        logits: Any = None,
        probabilities: Any = None,
        labels: Any = None,
        keep: float = 0.95,
        per_class: bool = False,
        outliers: Mapping[str, Any] | None = None,
        check: Any = None,
        name: str | Path | None = None,
    ) -> Self:
        """Find the threshold that keeps at least the share `keep` of new ID rows, in place.

        Parameters
        ----------
        features, logits, probabilities, labels
            ID rows on which neither the model was trained nor the score fitted, as in `fit`. Labels are not needed;
            with them, the record contains the accuracy.
        keep
            Share of new ID rows to keep.
        per_class
            Find one threshold for each predicted class.
        outliers
            Sets of unknown rows by name; the record contains the share of each that would pass as ID.
        check
            Other ID rows, or the share of the rows to hold back; the record contains the share that is kept and the
            share that was expected.
        name
            What the record calls these rows.

        Returns
        -------
        FeatureDetector
            The detector itself, whose `calibration` is the record.

        Examples
        --------
        >>> import macs, numpy as np
        >>> logits = np.random.default_rng(0).normal(size=(300, 5))
        >>> macs.FeatureDetector("energy").calibrate(logits=logits).calibration.images
        300
        """
        share_to_keep(keep)
        given = Rows.of(
            features,
            logits=logits,
            probabilities=probabilities,
            labels=labels,
            classes=self.classes,
            name=str(name or "calibration data"),
        )
        ready = self._accepting(given) if self.columns is None else self
        validation = ready._usable(given, "to calibrate")
        if per_class and ready._width == 0:
            raise MacsError("One threshold per class needs predicted classes; give logits, or the detector a head.")
        others = check
        if check is not None and not isinstance(check, int | float):
            others = ready._usable(ready._rows(check, "the data to check on"), "to check")
        unknown = by_name({} if outliers is None else outliers, "outliers")
        sets = {name: ready._usable(ready._rows(rows, name), "as outliers") for name, rows in unknown.items()}
        # A copy, since the score may be fitted on the way.
        done = copy(ready)._calibrate(validation, keep, per_class, sets, others, progress=False)
        assert done.p_values is not None  # since it is calibrated
        if ready.score.reads == "logits" and np.abs(done.p_values.confidences).max() < SAME:
            raise MacsError(
                f"{self.score.written} gives all rows the same confidence, 0, as energy does to probabilities and "
                "their logarithms, which sum to one; take msp or gen, or give logits."
            )
        return self._become(done)

    @classmethod
    def load(cls, path: str | Path, score: Score | str | None = None) -> "FeatureDetector":
        """Read a file that `save` wrote; no code from it is run.

        Parameters
        ----------
        path
            The file.
        score
            A score of your own, as an object or as "module:Class", if the file holds one.

        Returns
        -------
        FeatureDetector
            The calibrated detector.

        Examples
        --------
        >>> import macs, numpy as np
        >>> logits = np.random.default_rng(0).normal(size=(300, 5))
        >>> macs.FeatureDetector("energy").calibrate(logits=logits).save("d.safetensors")
        >>> macs.FeatureDetector.load("d.safetensors")
        <FeatureDetector Energy(), keeps 0.95 of calibration data>
        """
        from macs.detector.saving import read

        return read(path).load_features(score)

    def _accepting(self, rows: Rows) -> Self:
        """A copy that takes such rows; an error if the score needs others."""
        score, widths = self.score, rows.columns
        what = score.written
        takes_features = score.reads == "features" or (self.head is not None)
        if takes_features and rows.features is None:
            raise MacsError(f"{what} judges features{' of the head' if self.head is not None else ''}; give features.")
        if self.head is not None and widths.features != self.head[0].shape[1]:
            raise MacsError(
                f"{rows.name} has {widths.features:,} features per row, but the head takes {self.head[0].shape[1]:,}."
            )
        if self.head is None and score.uses_logits and rows.logits is None:
            raise MacsError(f"{what} judges logits; give logits, or a head that computes them from features.")
        columns = Columns(
            widths.features if takes_features else 0,
            0 if self.head is not None else widths.logits,
            self.head is None and widths.probabilities,
            rows.names if takes_features else (),
        )
        accepting = copy(self)
        accepting.columns = columns
        accepting._check_head(rows)
        return accepting

    def _check_head(self, rows: Rows) -> None:
        """Refuse a head that does not compute the logits that are given beside it."""
        if self.head is None or rows.logits is None or rows.probabilities or not len(rows):
            return
        part = next(rows.slices(256)).usable()
        assert part.features is not None and part.logits is not None  # since both were given
        if part.logits.shape[1] != len(self.head[1]):
            raise MacsError(f"{rows.name} has {part.logits.shape[1]} logits per row, but the head {len(self.head[1])}.")
        given, made = part.logits, self.outputs(part.features, None).logits.cpu().numpy()
        if len(given) and not np.abs(given - made).mean() <= AGREE * max(float(given.std()), 1e-6):
            raise MacsError(
                f"The head does not compute the logits of {rows.name} from its features; give the weights (K x D) and "
                "the bias of the last layer, and the features that enter it."
            )

    def _rows(self, given: Any, name: str) -> Rows:
        return Rows.of(given, classes=self.classes, name=name)

    def _usable(self, rows: Rows, purpose: str) -> Rows:
        return rows.matched(self.accepted).usable(purpose)

    @property
    def _width(self) -> int:
        """The number of classes that are predicted; 0 without a classifier."""
        return len(self.head[1]) if self.head is not None else self.accepted.logits

    def _logits(self, features: Tensor) -> Tensor:
        assert self.head is not None
        return torch.nn.functional.linear(features, *self.head)

    def outputs(self, features: NDArray[np.float32] | None, logits: NDArray[np.float32] | None) -> Outputs:
        """The arrays of a batch as the score takes them: copies, since a score may compute in place."""
        tensor = None if features is None else torch.tensor(features, device=self.device)
        if logits is not None:
            given = torch.tensor(logits, device=self.device)
            return Outputs(given.clamp(min=SMALLEST).log() if self.accepted.probabilities else given, tensor)
        assert tensor is not None  # since there is always one of both
        return Outputs(tensor[:, :0] if self.head is None else self._logits(tensor), tensor)

    def zeros(self) -> Outputs:
        """The outputs for a row of zeros."""
        widths = (self.accepted.features, self.accepted.logits)
        return self.outputs(*(np.zeros((1, width), np.float32) if width else None for width in widths))

    @torch.inference_mode()
    def answer(self, features: NDArray[np.float32] | None, logits: NDArray[np.float32] | None) -> Predictions:
        return self._with_p_values(scores.answer(self.score, self.outputs(features, logits)))

    def ask(self, images: Rows, progress: bool = False) -> Predictions:
        predictions, reasons = self.asked(images)
        assert not reasons  # since they are usable
        return predictions.checked(images.name)

    def _known(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Logits and features of all rows."""
        parts = [self.outputs(part.features, part.logits) for part in rows.slices()]
        logits = torch.cat([part.logits for part in parts])
        features = logits[:, :0] if rows.features is None else torch.cat([part.features for part in parts])
        return logits, features

    @torch.no_grad()
    def _know(self, fitting: Fitting[Rows], held_out: Rows | None) -> Known:
        train = fitting.train
        if train is not None and 0 < fitting.limit < len(train):
            train, _ = train.split(fitting.limit, fitting.seed)
        known = self._last_layer(train or held_out)
        if train is not None:
            logits, features = self._known(train)
            labels = None if train.labels is None else torch.from_numpy(train.labels).to(self.device)
            if self.score.labelled and labels is None:
                raise MacsError(f"{self.score.written} is fitted class by class; give labels=.")
            negative = negative_share(features)
            known = replace(
                known, logits=logits, features=features, labels=labels, source=train.name, negative=negative
            )
        if held_out is None:
            return known
        if len(held_out) > 1000:
            held_out, _ = held_out.split(1000, fitting.seed)
        return replace(known, held_out=Outputs(*self._known(held_out)), held_out_source=held_out.name)

    def _last_layer(self, images: Rows | None) -> Known:
        width, count = self.accepted.features, self._width
        empty = torch.empty(0, device=self.device)
        weight, bias = self.head or (empty.new_empty(0, width), empty)
        return Known(empty.new_empty(0, count), empty.new_empty(0, width), None, weight, bias)

    def _chosen(self, auto: Auto, fitting: Fitting[Rows], held_out: Rows) -> tuple[Score, Choice]:
        raise NotImplementedError("a detector of rows has no score to choose")

    def _names(self, images: Rows) -> tuple[str, ...]:
        if not self._width:
            return ()
        names = self.classes or images.classes or tuple(map(str, range(self._width)))
        if len(names) != self._width:
            raise MacsError(f"There are {self._width} logits, but {len(names)} classes ({few(names)}).")
        return names

    def _hash(self, images: Rows) -> str:
        return images.hash()


def linear_head(given: Any) -> tuple[Tensor, Tensor]:
    """Weights and bias of a linear layer in float32, from a pair of arrays or from a layer of torch."""
    pair = (given.weight, given.bias) if hasattr(given, "weight") else given
    try:
        weight, bias = pair
    except (TypeError, ValueError):
        raise MacsError(
            "head is the last linear layer: a pair (W, b) with W of K x D and b of K, or a layer."
        ) from None
    wide = matrix(weight, "The weights of the head")
    row = np.zeros((1, len(wide))) if bias is None else np.reshape(plain_array(bias), (1, -1))
    offset = matrix(row, "The bias of the head")[0]
    if offset.shape != (len(wide),) or len(wide) < 2:
        raise MacsError(
            f"The head needs W of K x D and b of K for two classes or more, not {wide.shape} and {offset.shape}."
        )
    made = tuple(torch.from_numpy(np.array(array, np.float32)) for array in (wide, offset))
    if not all(bool(tensor.isfinite().all()) for tensor in made):
        raise MacsError("The head holds numbers that are not finite.")
    return made[0], made[1]
