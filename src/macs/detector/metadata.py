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
from macs.detector.calibration import Calibration, Threshold, rank
from macs.detector.p_values import MOST
from macs.detector.score_selection import Choice
from macs.metrics.reliability import HIGHEST, LOWEST

FORMAT, VERSION = "macs-detector", 4
MOST_IMAGES = 2**53


@dataclass(frozen=True)
class DetectorMetadata:
    """Everything about a detector except its tensors."""

    format: str
    version: int
    macs: str
    net: str
    classes: tuple[str, ...]
    preparation: Preparation
    score: str
    calibration: Calibration
    recipe: dict[str, Any] | None
    settings: dict[str, Any] = field(default_factory=dict)  # of the score
    choice: Choice | None = None  # how the score was chosen, if macs chose it
    config: dict[str, Any] | None = None  # of a network that its name alone does not build
    temperature: float | None = None  # of the class probabilities

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "preparation": self.preparation.as_dict()}

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
    if type(version) is int and version != VERSION:
        age, remedy = ("a newer", "upgrade to read it") if version > VERSION else ("an older", "calibrate again")
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
    if wrong := wrong_names(metadata.classes) or ("" if metadata.classes else "there are no classes"):
        yield wrong
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


def _complaints_about(threshold: Threshold, keep: float) -> Iterator[str]:
    low, high = threshold.interval
    n, k = threshold.images, threshold.rank
    if not 0 < n <= MOST_IMAGES or k < 1 or k != rank(n, keep):
        yield f"a threshold of rank {k} among {n} images does not keep {keep}"
    if not 0 <= low <= high <= 1:
        yield f"the interval {low} to {high} holds no shares"
    if abs(threshold.value) > float(np.finfo(np.float32).max) or float(np.float32(threshold.value)) != threshold.value:
        yield f"the threshold {threshold.value} is not a 32-bit number"
