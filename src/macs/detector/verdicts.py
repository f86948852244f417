"""A detector's output: verdicts for arrays of images, rows for files, and control of the false discovery rate.

A verdict is made in one of two ways, each with its own promise (docs/detector.md):

    by the threshold    of new ID images, at least a stated share is kept
    by p-values         of the images called OOD, the expected share that are in truth ID is at most `fdr`

The second is the procedure of Benjamini and Hochberg (1995) over all images of a call. With p_(1) <= ... <= p_(m),

    k = max{i : p_(i) <= i fdr / m},        the images with the k smallest p-values are OOD.

It holds for conformal p-values that share one calibration set: Bates, Candès, Lei, Romano, Sesia: Testing for outliers
with conformal p-values, Annals of Statistics 2023.
"""

import json
import tempfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macs.answers import Answers
from macs.core.errors import MacsError
from macs.core.settings import Span

if TYPE_CHECKING:
    import pandas

ROUNDING = 1e-6  # p-values are float32, and 5/100 must not exceed a level of 0.05


@dataclass(frozen=True, eq=False)
class RankedAnswers(Answers):
    """Answers with one p-value per image; NaN if the detector keeps no calibration confidences."""

    p_values: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Verdicts(RankedAnswers):
    """Predicted class, confidence, p-value and verdict per image."""

    is_ood: NDArray[np.bool_]
    classes: tuple[str, ...]
    thresholds: NDArray[np.float32] | None = None  # one per image; None if p-values decided

    @property
    def labels(self) -> NDArray[np.int64]:
        """The number of the predicted class of each image, OOD or not."""
        return self.predictions

    @property
    def names(self) -> list[str]:
        """The name of the predicted class of each image, OOD or not."""
        return [self.classes[label] for label in self.predictions]

    def to_frame(self) -> "pandas.DataFrame":
        """Return the verdicts as a table of pandas, one row per image.

        Returns
        -------
        pandas.DataFrame
            The columns are index, class, confidence, p_value, threshold, is_ood and reason. The threshold is NaN where
            p-values decided; the reason is empty, since every image here has a verdict.

        Examples
        --------
        >>> import macs
        >>> net = macs.nets.build("wrn-10-1", classes=8)
        >>> detector = macs.Detector(net).calibrate(macs.data.load("digits", "val"))
        >>> list(detector.predict(macs.data.load("digits", "test")).to_frame())
        ['index', 'class', 'confidence', 'p_value', 'threshold', 'is_ood', 'reason']
        """
        if find_spec("pandas") is None:
            raise MacsError("to_frame needs pandas, which is not installed: pip install pandas.")
        import pandas

        thresholds = np.full(len(self), np.nan, np.float32) if self.thresholds is None else self.thresholds
        return pandas.DataFrame(
            {
                "index": np.arange(len(self)),
                "class": self.names,
                "confidence": self.confidences,
                "p_value": self.p_values,
                "threshold": thresholds,
                "is_ood": self.is_ood,
                "reason": "",
            }
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row of output: an image's class, confidence, p-value and verdict, or the reason why it has none."""

    path: str
    label: int | None = None
    name: str | None = None
    confidence: float | None = None
    p_value: float | None = None  # None as well if the detector keeps no calibration confidences
    is_ood: bool | None = None
    reason: str = ""


def predictions(paths: Iterable[str], verdicts: Verdicts) -> Iterator[Prediction]:
    """One row per image."""
    columns = (
        verdicts.predictions.tolist(),
        verdicts.names,
        map(shortest, verdicts.confidences),
        (None if np.isnan(value) else shortest(value) for value in verdicts.p_values),
        verdicts.is_ood.tolist(),
    )
    return map(Prediction, paths, *columns)


def shortest(value: np.float32) -> float:
    """The number with the fewest digits that rounds to the same float32."""
    return float(str(value))


def false_discovery_level(fdr: float) -> float:
    """The rate, or an error if it is not between 0 and 1."""
    return Span(0, 1, open="both").hold("The false discovery rate", fdr)


def highest_discovery(p_values: NDArray[np.float32], fdr: float) -> float:
    """The largest p-value that is called OOD by Benjamini and Hochberg's procedure; -1 if none is."""
    if not len(p_values):
        return -1.0
    ascending = np.sort(p_values.astype(np.float64))
    reached = ascending <= (1 + ROUNDING) * fdr * np.arange(1, len(ascending) + 1) / len(ascending)
    return float(ascending[reached][-1]) if reached.any() else -1.0


def control_false_discoveries(rows: Iterable[Prediction], fdr: float) -> Iterator[Prediction]:
    """The same rows with verdicts by their p-values, which can only be made when all rows are known.

    Until then the rows are in a temporary file, and memory holds four bytes per row.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        p_values = array("f")
        for row in rows:
            print(json.dumps(astuple(row)), file=file)
            if row.p_value is not None:
                p_values.append(row.p_value)
        highest = highest_discovery(np.frombuffer(p_values, np.float32), fdr)
        file.seek(0)
        for line in file:
            row = Prediction(*json.loads(line))
            yield row if row.p_value is None else replace(row, is_ood=float(np.float32(row.p_value)) <= highest)
