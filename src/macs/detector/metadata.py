"""The metadata of a detector file: its fields, and the checks that each has a value that macs could have written.

The checksum only reveals damage, since whoever forges metadata can compute it too. So types, keys and ranges are
checked here, before anything is built from them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from macs.core.errors import MacsError
from macs.core.settings import from_dict
from macs.data.preparation import Preparation
from macs.detector.calibration import IMAGES, MOST, ROWS, Calibration, Threshold, rank
from macs.detector.rows import Columns
from macs.detector.score_selection import Choice
from macs.metrics.reliability import HIGHEST, LOWEST

FORMAT, VERSION = "macs-detector", 4
OF_ROWS = 5  # the version of a file that judges rows
MOST_IMAGES = 2**53
MOST_COLUMNS = 2**31


@dataclass(frozen=True)
class DetectorMetadata:
    """Everything about a detector except its tensors."""

    format: str
    version: int
    macs: str
    net: str  # empty for rows, which bring their logits and features
    classes: tuple[str, ...]
    preparation: Preparation | None  # of images; None for rows
    score: str
    calibration: Calibration
    recipe: dict[str, Any] | None
    settings: dict[str, Any] = field(default_factory=dict)  # of the score
    choice: Choice | None = None  # how the score was chosen, if macs chose it
    config: dict[str, Any] | None = None  # of a network that its name alone does not build
    columns: Columns | None = None  # of rows; None for images
    temperature: float | None = None  # of the class probabilities

    def as_dict(self) -> dict[str, Any]:
        values = {**asdict(self), "calibration": self.calibration.as_dict()}
        if self.preparation is not None:
            del values["columns"]  # as it was before there were rows
            values["preparation"] = self.preparation.as_dict()
        return values

    def for_images(self, path: str | Path) -> Preparation:
        """The preparation of images; an error if the detector judges rows."""
        if self.preparation is None:
            raise MacsError(
                f"{path} judges rows of {self.columns}, not images; its classes are FeatureDetector and "
                "FeatureRuntime (docs/features.md)."
            )
        return self.preparation

    def for_rows(self, path: str | Path) -> Columns:
        """The arrays that the detector takes; an error if it judges images."""
        if self.columns is None:
            raise MacsError(f"{path} judges images, not rows; its classes are Detector and Runtime.")
        return self.columns

    @classmethod
    def from_json(cls, values: dict[str, Any], path: str | Path) -> "DetectorMetadata":
        """Return the metadata of a recognised file; raise and name the first field that is wrong."""
        try:
            metadata = from_dict(cls, values)
            wrong = next(_complaints(metadata), "")
        except MacsError as error:
            wrong = str(error).rstrip(".")
        if wrong:
            raise MacsError(f"{path} has metadata that macs did not write: {wrong}; calibrate again.")
        return metadata


def recognise(values: Any, path: str | Path) -> None:
    """Raise if the metadata are not those of a detector, or of another version of the format."""
    kind, version = (values.get(key) if isinstance(values, dict) else None for key in ("format", "version"))
    if kind != FORMAT:
        what = f"says that it is a {str(kind)[:40]}" if kind else "has no metadata of ours"
        raise MacsError(f"{path} is not a detector: it {what}; make one with: macs calibrate.")
    expected = OF_ROWS if values.get("columns") else VERSION
    if type(version) is int and version != expected:
        age, remedy = ("a newer", "upgrade to read it") if version > expected else ("an older", "calibrate again")
        raise MacsError(f"{path} was written by {age} macs ({str(values.get('macs'))[:40]}); {remedy}.")


def wrong_names(names: Sequence[str]) -> str:
    """What is wrong with the names of classes, as a clause of a sentence; empty if nothing is."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"two classes are called {twice[0]!r}"
    if not all(name.strip() for name in names):
        return "a class has no name"
    return "" if len(names) != 1 else "there is only one class"


def _complaints(metadata: DetectorMetadata) -> Iterator[str]:
    record, count = metadata.calibration, len(metadata.classes)
    columns = metadata.columns
    if wrong := wrong_names(metadata.classes) or ("" if metadata.classes or columns else "there are no classes"):
        yield wrong
    if (metadata.preparation is None) != (columns is not None):
        yield "it must say how it takes either images or rows"
    if record.unit != (ROWS if columns else IMAGES):
        yield f"it was calibrated on {record.unit}"
    if columns is not None:
        yield from _complaints_about_columns(columns, count)
    if record.score != metadata.score:
        yield f"the score is {metadata.score!r}, and that of the calibration {record.score!r}"
    if not 0 < record.keep < 1:
        yield f"keep is {record.keep}, which must lie between 0 and 1"
    if len(record.thresholds) not in (1, count):
        yield f"there are {len(record.thresholds)} thresholds for {count} classes"
    groups = [threshold.group for threshold in record.thresholds]
    if groups != ([""] if len(groups) == 1 else list(metadata.classes)):
        yield "the thresholds are not those of the classes in order"
    if sum(threshold.images for threshold in record.thresholds) != record.images:
        yield "the numbers of calibration images do not add up"
    for threshold in record.thresholds:
        yield from _complaints_about(threshold, record.keep)
    shares = [*record.passing.values(), *(check.kept for check in record.checks)]
    shares += [share for check in record.checks for share in check.expected]
    if not all(0 <= share <= 1 for share in [*shares, record.accuracy or 0.0]):
        yield "a share of images lies outside 0 to 1"
    if len(record.ranked) != len(groups) or not all(0 <= n <= MOST for n in record.ranked):
        yield "the numbers of confidences kept for p-values are not those of the thresholds"
    if len(record.checks) > len(groups) or not all(check.images > 0 for check in record.checks):
        yield "the checks are not those of the thresholds"
    if metadata.temperature is not None and not LOWEST / 2 <= metadata.temperature <= 2 * HIGHEST:
        yield f"the temperature is {metadata.temperature}, which no calibration finds"


def _complaints_about_columns(columns: Columns, classes: int) -> Iterator[str]:
    if not 0 <= columns.features <= MOST_COLUMNS or not 0 <= columns.logits <= MOST_COLUMNS or not columns.takes:
        yield f"no rows have {columns.features} features and {columns.logits} logits"
    if columns.logits and columns.logits != classes:
        yield f"there are {columns.logits} logits for {classes} classes"
    if columns.names and len(columns.names) != columns.features:
        yield f"there are {len(columns.names)} names for {columns.features} features"


def _complaints_about(threshold: Threshold, keep: float) -> Iterator[str]:
    low, high = threshold.interval
    n, k = threshold.images, threshold.rank
    if not 0 < n <= MOST_IMAGES or k < 1 or k != rank(n, keep):
        yield f"a threshold of rank {k} among {n} images does not keep {keep}"
    if not 0 <= low <= high <= 1:
        yield f"the interval {low} to {high} holds no shares"
    if abs(threshold.value) > float(np.finfo(np.float32).max) or float(np.float32(threshold.value)) != threshold.value:
        yield f"the threshold {threshold.value} is not a 32-bit number"
