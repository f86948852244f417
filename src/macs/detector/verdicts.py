"""What a detector says of images: verdicts for a batch of arrays, predictions for files, and the false-alarm rate.

A verdict is made in one of two ways, each with its own promise (docs/detector.md):

    by the threshold    of ID images, a stated share is kept
    by p-values         of the images reported OOD, an expected share of at most `fdr` are in truth ID

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

import numpy as np
from numpy.typing import NDArray

from macs.answers import Answers
from macs.core.settings import Span

ROUNDING = 1e-6  # p-values are float32: 5 of 100 shall reach a level of 0.05


@dataclass(frozen=True, eq=False)
class RankedAnswers(Answers):
    """Answers with a p-value for each image: how an ID image would rank. NaN where there is nothing to rank among."""

    p_values: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Verdicts(RankedAnswers):
    """One answer per image: its class, how sure the network is, its p-value, and whether it is OOD."""

    is_ood: NDArray[np.bool_]
    classes: tuple[str, ...]

    @property
    def labels(self) -> NDArray[np.int64]:
        """The number of the predicted class of each image, OOD or not."""
        return self.predictions

    @property
    def names(self) -> list[str]:
        """The name of the predicted class of each image, OOD or not."""
        return [self.classes[label] for label in self.predictions]


@dataclass(frozen=True, slots=True)
class Prediction:
    """One image: its class, confidence, p-value and verdict, or the reason why there are none."""

    path: str
    label: int | None = None
    name: str | None = None
    confidence: float | None = None
    p_value: float | None = None  # None also where the detector keeps no calibration confidences
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
    """The number with the fewest digits that is the same float32."""
    return float(str(value))


def false_discovery_level(fdr: float) -> float:
    """The rate, if it is one that can be promised."""
    return Span(0, 1, open="both").hold("The false discovery rate", fdr)


def highest_discovery(p_values: NDArray[np.float32], fdr: float) -> float:
    """The largest p-value that is reported OOD (Benjamini-Hochberg); -1 where none is."""
    if not len(p_values):
        return -1.0
    ascending = np.sort(p_values.astype(np.float64))
    reached = ascending <= (1 + ROUNDING) * fdr * np.arange(1, len(ascending) + 1) / len(ascending)
    return float(ascending[reached][-1]) if reached.any() else -1.0


def control_false_discoveries(rows: Iterable[Prediction], fdr: float) -> Iterator[Prediction]:
    """The same rows with verdicts by their p-values, once all are known.

    Until then they wait in a temporary file: however many there are, memory holds four bytes of each.
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
