"""Predictions and verdicts for images or rows, whichever runtime computed them; control of the false discovery rate.

A prediction is a class, a confidence and a p-value; a verdict says in addition whether the image is OOD. The names are
the same everywhere, in Python, CSV, JSON lines, Parquet, HTTP and ONNX: `index`, `class` (`class_` in Python),
`confidence`, `p_value`, `threshold`, `is_ood`, `reason`.

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
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, fields, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.text import html_table

if TYPE_CHECKING:
    import pandas


NO_CLASS = -1  # the index where no class is predicted: without a classifier, or for a row that cannot be judged


def renamed(old: str, new: str) -> Any:
    """Return a property that gives an attribute by its old name, with a warning."""

    def get(self: object) -> Any:
        warnings.warn(f"{type(self).__name__}.{old} is now called {new}.", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(get)


@dataclass(frozen=True, eq=False)  # comparing arrays does not give one bool
class Predictions:
    """One predicted class, one confidence and one p-value per image."""

    index: NDArray[np.int64]  # of the predicted class; NO_CLASS if there is none
    confidence: NDArray[np.float32]
    p_value: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))  # NaN unless calibrated

    predictions = renamed("predictions", "index")
    confidences = renamed("confidences", "confidence")
    p_values = renamed("p_values", "p_value")

    def __post_init__(self) -> None:
        if not len(self.p_value):
            object.__setattr__(self, "p_value", np.full(len(self), np.nan, np.float32))

    def __len__(self) -> int:
        return len(self.index)

    def checked(self, images: str) -> Self:
        """Return the predictions themselves; raise if a confidence is not a number."""
        if broken := np.count_nonzero(np.isnan(self.confidence)):
            raise MacsError(
                f"{broken} of {len(self)} images of {images} get a confidence that is not a number; look "
                "at the network's logits for them, then at the score."
            )
        return self


P = TypeVar("P", bound=Predictions)


def joined(parts: Iterable[P]) -> P:
    """Return the predictions for all batches as one."""
    parts = list(parts)
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(parts[0]))
    return type(parts[0])(*columns)


FIRST = 10  # verdicts that a notebook shows
PER_IMAGE = ("index", "confidence", "p_value", "is_ood", "threshold")
ROUNDING = 1e-6  # p-values are float32, and 5/100 must not exceed a level of 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdicts(Predictions):
    """The result of a detector: index and class, confidence, p-value, threshold and verdict per image."""

    is_ood: NDArray[np.bool_]
    classes: tuple[str, ...]  # the names of all classes
    threshold: NDArray[np.float32]  # NaN where p-values decided
    reasons: Mapping[int, str] = field(default_factory=dict)  # position -> why this row could not be judged

    labels = renamed("labels", "index")
    names = renamed("names", "class_")
    thresholds = renamed("thresholds", "threshold")

    def _repr_html_(self) -> str:
        """The first verdicts and the counts, as a notebook shows them."""
        shown = min(len(self), FIRST)
        rows = [
            (
                i,
                row.class_,
                f"{row.confidence:.4g}",
                "" if row.p_value is None else f"{row.p_value:.3g}",
                "unknown" if row.is_ood else "known",
            )
            for i, row in enumerate(
                replace(self, **{name: getattr(self, name)[:shown] for name in PER_IMAGE}).rows(map(str, range(shown)))
            )
        ]
        ood = int(self.is_ood.sum())
        rest = f", of which the first {shown} are shown" if shown < len(self) else ""
        note = f"{len(self):,} images: {len(self) - ood:,} known, {ood:,} unknown{rest}."
        return html_table(["", "class", "confidence", "p-value", "verdict"], rows, note=note)

    @property
    def class_(self) -> "list[str | None]":
        """The name of the predicted class of each image, OOD or not; None where no class is predicted."""
        return [None if index == NO_CLASS else self.classes[index] for index in self.index.tolist()]

    @property
    def reason(self) -> list[str]:
        """Why a row could not be judged; empty for every row that has a verdict. A row without one counts as OOD."""
        return [self.reasons.get(place, "") for place in range(len(self))]

    def rows(self, paths: Iterable[str]) -> "Iterator[Verdict]":
        """Return one row per image."""
        columns = zip(
            paths,
            [None if index == NO_CLASS else index for index in self.index.tolist()],
            self.class_,
            map(shortest, self.confidence),
            map(number, self.p_value),
            map(number, self.threshold),
            self.is_ood.tolist(),
            strict=False,
        )
        for place, values in enumerate(columns):
            yield Verdict(values[0], reason=self.reasons[place]) if place in self.reasons else Verdict(*values)

    def to_frame(self) -> "pandas.DataFrame":
        """Return the verdicts as a table of pandas, one row per image.

        Returns
        -------
        pandas.DataFrame
            The columns are index (of the predicted class), class, confidence, p_value, threshold, is_ood and reason.
            The threshold is NaN where p-values decided; the reason is empty where there is a verdict.

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

        columns = {name: getattr(self, NAMES[name]) for name in COLUMNS if name != "path"}
        return pandas.DataFrame(columns)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row of output: the verdict on one image, or the reason why it has none."""

    path: str
    index: int | None = None  # of the predicted class
    class_: str | None = None
    confidence: float | None = None
    p_value: float | None = None  # None as well if there is none
    threshold: float | None = None  # None as well if p-values decided
    is_ood: bool | None = None
    reason: str = ""

    label = renamed("label", "index")
    name = renamed("name", "class_")


NAMES = {field.name.rstrip("_"): field.name for field in fields(Verdict)}  # column -> attribute
COLUMNS = tuple(NAMES)  # path, index, class, confidence, p_value, threshold, is_ood, reason


def number(value: np.float32) -> float | None:
    """Return a number in few digits, or None for NaN."""
    return None if np.isnan(value) else shortest(value)


def shortest(value: np.float32) -> float:
    """Return the number with the fewest digits that rounds to the same float32."""
    return float(str(value))


class Count:
    """The numbers of rows, of OOD images, and of images that could not be read."""

    def __init__(self, unit: str = "images") -> None:
        self.unit = unit
        self.rows = self.ood = self.failed = 0

    def __str__(self) -> str:
        rows = "its row gives" if self.failed == 1 else "their rows give"
        failed = f"{self.failed:,} could not be read ({rows} the reason)"
        known = self.rows - self.ood - self.failed
        return f"{self.rows:,} {self.unit}: {known:,} ID, {self.ood:,} OOD" + (f", {failed}" if self.failed else "")

    def add(self, row: Verdict) -> None:
        self.rows += 1
        self.ood += row.is_ood is True
        self.failed += row.is_ood is None

    def through(self, rows: Iterable[Verdict]) -> Iterator[Verdict]:
        """Yield the rows and count them as they pass."""
        for row in rows:
            self.add(row)
            yield row


def highest_discovery(p_values: NDArray[np.float32], fdr: float) -> float:
    """Return the largest p-value that is called OOD by Benjamini and Hochberg's procedure; -1 if none is."""
    if not len(p_values):
        return -1.0
    ascending = np.sort(p_values.astype(np.float64))
    reached = ascending <= (1 + ROUNDING) * fdr * np.arange(1, len(ascending) + 1) / len(ascending)
    return float(ascending[reached][-1]) if reached.any() else -1.0


def control_false_discoveries(rows: Iterable[Verdict], fdr: float) -> Iterator[Verdict]:
    """Yield the same rows with verdicts by their p-values, which can only be made when all rows are known.

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
            row = Verdict(*json.loads(line))
            if row.p_value is not None:
                row = replace(row, is_ood=float(np.float32(row.p_value)) <= highest, threshold=None)
            yield row
