"""The label of a detector file: its fields, and the checks that each of them has a value that macs could have written.

The checksum only reveals damage, since whoever forges a label can compute it too. So types, keys and ranges are checked
here, before anything is built from them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from macs.core.errors import MacsError
from macs.core.settings import from_dict
from macs.data.preparation import NORMALISATIONS, Preparation
from macs.detector.calibration import Calibration, Threshold, rank
from macs.detector.choosing import Choice
from macs.detector.reference import MOST

FORMAT, VERSION = "macs-detector", 4
MOST_IMAGES = 2**53


class Misfit(Exception):
    """Says what is wrong with a label, as a clause of a sentence."""


@dataclass(frozen=True)
class DetectorLabel:
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
    settings: dict[str, Any] = field(default_factory=dict)  # of the score; versions 1 and 2 had none
    choice: Choice | None = None  # how the score was chosen, if macs chose it
    config: dict[str, Any] | None = None  # of a network that its name alone does not build

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "preparation": self.preparation.as_dict()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "DetectorLabel":
        """A label that is right in every field; a Misfit names the first field that is not."""
        try:
            label = from_dict(cls, _renewed(values))
        except MacsError as error:
            raise Misfit(str(error).rstrip(".")) from None
        for complaint in _complaints(label):
            raise Misfit(complaint)
        return label


def recognise(label: Any, path: str | Path) -> None:
    """Refuse a label that is not that of a detector, or that a newer version wrote."""
    kind, version = (label.get(key) if isinstance(label, dict) else None for key in ("format", "version"))
    if kind != FORMAT:
        what = f"says that it is a {str(kind)[:40]}" if kind else "has no label of ours"
        raise MacsError(f"{path} is not a detector: it {what}; make one with: macs calibrate.")
    if type(version) is int and version > VERSION:
        raise MacsError(f"{path} was written by a newer macs ({str(label.get('macs'))[:40]}); upgrade to read it.")


def read_label(values: dict[str, Any], path: str | Path) -> DetectorLabel:
    """The label of a recognised file."""
    try:
        return DetectorLabel.from_json(values)
    except Misfit as error:
        raise MacsError(f"{path} has a label that macs did not write: {error}; calibrate again.") from None


def _renewed(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a label in today's form: before version 3 they held a size and a normalisation, no preparation."""
    if not isinstance(values.get("preparation"), str):  # then a description in words
        return values
    rest = {key: value for key, value in values.items() if key not in ("size", "normalisation")}
    normalisation = values.get("normalisation")
    if normalisation is None:  # in version 1 our networks had one normalisation, and users' networks had none
        normalisation = NORMALISATIONS["none" if ":" in str(values.get("net")) else "oe"]._asdict()
    if type(normalisation) is not dict or normalisation.keys() != {"mean", "std"}:
        raise Misfit("normalisation must have the keys mean, std")
    return rest | {"preparation": {"size": values.get("size"), **normalisation}}


def wrong_names(names: Sequence[str]) -> str:
    """What is wrong with the names of classes, as a clause of a sentence; empty if nothing is."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        return f"two classes are called {twice[0]!r}"
    if not all(name.strip() for name in names):
        return "a class has no name"
    return "" if len(names) != 1 else "there is only one class"


def _complaints(label: DetectorLabel) -> Iterator[str]:
    record, count = label.calibration, len(label.classes)
    if not 1 <= label.version <= VERSION:
        yield f"version is {label.version}"
    if wrong := wrong_names(label.classes) or ("" if label.classes else "there are no classes"):
        yield wrong
    if record.score != label.score:
        yield f"the score is {label.score!r}, and that of the calibration {record.score!r}"
    if not 0 < record.keep < 1:
        yield f"keep is {record.keep}, which must lie between 0 and 1"
    if len(record.thresholds) not in (1, count):
        yield f"there are {len(record.thresholds)} thresholds for {count} classes"
    groups = [threshold.group for threshold in record.thresholds]
    if groups != ([""] if len(groups) == 1 else list(label.classes)):
        yield "the thresholds are not those of the classes in order"
    if sum(threshold.images for threshold in record.thresholds) != record.images:
        yield "the numbers of calibration images do not add up"
    for threshold in record.thresholds:
        yield from _complaints_about(threshold, record.keep)
    shares = [*record.passing.values(), *(check.kept for check in record.checks)]
    shares += [share for check in record.checks for share in check.expected]
    if not all(0 <= share <= 1 for share in [*shares, record.accuracy or 0.0]):
        yield "a share of images lies outside 0 to 1"
    if record.ranked and (len(record.ranked) != len(groups) or not all(0 <= n <= MOST for n in record.ranked)):
        yield "the numbers of confidences kept for p-values are not those of the thresholds"
    if len(record.checks) > len(groups) or not all(check.images > 0 for check in record.checks):
        yield "the checks are not those of the thresholds"


def _complaints_about(threshold: Threshold, keep: float) -> Iterator[str]:
    low, high = threshold.interval
    n, k = threshold.images, threshold.rank
    if not 0 < n <= MOST_IMAGES or k < 1 or k != rank(n, keep):
        yield f"a threshold of rank {k} among {n} images does not keep {keep}"
    if not 0 <= low <= high <= 1:
        yield f"the interval {low} to {high} holds no shares"
    if abs(threshold.value) > float(np.finfo(np.float32).max) or float(np.float32(threshold.value)) != threshold.value:
        yield f"the threshold {threshold.value} is not a 32-bit number"
