"""The label of a detector file, held to what macs writes in every field.

The checksum only tells damage: whoever forges a label can compute it too. So types, keys and ranges are checked here,
once, before anything is built by them.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from macs.core.errors import MacsError
from macs.data.preparation import NORMALISATIONS, Preparation
from macs.detector.calibration import Calibration, Threshold, rank
from macs.detector.choosing import Choice
from macs.detector.reference import MOST

FORMAT, VERSION = "macs-detector", 4
MOST_IMAGES = 2**53


class Misfit(Exception):
    """What is wrong with a label, in half a sentence."""


@dataclass(frozen=True)
class DetectorLabel:
    """Everything that a detector is but its weights."""

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
    choice: Choice | None = None  # how the score was chosen, where it was
    config: dict[str, Any] | None = None  # of a network that its name alone does not build

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "preparation": self.preparation.as_dict()}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> "DetectorLabel":
        """A label that is right in every field, or a Misfit that names the first one that is not."""
        label: DetectorLabel = fitted(cls, _renewed(told), "label")
        for complaint in _complaints(label):
            raise Misfit(complaint)
        return label


def recognise(told: Any, path: str | Path) -> None:
    """Refuse what does not say that it is a detector of this version or an earlier one."""
    kind, version = (told.get(key) if isinstance(told, dict) else None for key in ("format", "version"))
    if kind != FORMAT:
        what = f"says that it is a {str(kind)[:40]}" if kind else "has no label of ours"
        raise MacsError(f"{path} is not a detector: it {what}; make one with: macs calibrate.")
    if type(version) is int and version > VERSION:
        raise MacsError(f"{path} was written by a newer macs ({str(told.get('macs'))[:40]}); upgrade to read it.")


def read_label(told: dict[str, Any], path: str | Path) -> DetectorLabel:
    """The label of a recognised file."""
    try:
        return DetectorLabel.from_json(told)
    except Misfit as error:
        raise MacsError(f"{path} has a label that macs did not write: {error}; calibrate anew.") from None


def _renewed(told: dict[str, Any]) -> dict[str, Any]:
    """A label of before version 3, which had the size, the normalisation and words in place of a preparation."""
    if not isinstance(told.get("preparation"), str):
        return told
    rest = {key: value for key, value in told.items() if key not in ("size", "normalisation")}
    values = told.get("normalisation")
    if values is None:  # version 1 knew of one normalisation only; networks of the users have none
        values = NORMALISATIONS["none" if ":" in str(told.get("net")) else "oe"]._asdict()
    if type(values) is not dict or values.keys() != {"mean", "std"}:
        raise Misfit("normalisation must have the keys mean, std")
    return rest | {"preparation": {"size": told.get("size"), **values}}


def fitted(kind: Any, value: Any, name: str) -> Any:
    """What JSON gave as the type that was declared; nothing is rounded, guessed or left over."""
    inner, whole = get_args(kind), get_origin(kind)
    if isinstance(kind, UnionType):
        return None if value is None and NoneType in inner else fitted(inner[0], value, name)
    if kind is Preparation:
        try:
            return Preparation.from_dict(value)
        except MacsError as error:
            raise Misfit(f"{name}: {str(error).rstrip('.')}") from None
    if is_dataclass(kind):
        return _record(kind, value, name)
    if whole in (tuple, dict):
        return _tuple(inner, value, name) if whole is tuple else _dict(inner[1], value, name)
    if kind is float and type(value) is int and abs(value) <= MOST_IMAGES:
        return float(value)
    if kind is not Any and (type(value) is not kind or (kind is float and not math.isfinite(value))):
        words = {str: "a text", int: "a whole number", float: "a finite number"}
        raise Misfit(f"{name} must be {words[kind]}, not {str(value)[:40]!r}")
    return value


def _record(kind: Any, value: Any, name: str) -> Any:
    required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    hints = get_type_hints(kind)
    if type(value) is not dict or not required <= value.keys() <= hints.keys():
        raise Misfit(f"{name} must have the keys {', '.join(hints)}")
    return kind(**{key: fitted(hints[key], each, f"{name}.{key}") for key, each in value.items()})


def _tuple(kinds: tuple[Any, ...], value: Any, name: str) -> tuple[Any, ...]:
    any_number = kinds[-1] is Ellipsis
    if type(value) is not list or not (any_number or len(value) == len(kinds)):
        raise Misfit(f"{name} must be a list{'' if any_number else f' of {len(kinds)}'}")
    return tuple(fitted(kinds[0 if any_number else i], each, f"{name}[{i}]") for i, each in enumerate(value))


def _dict(kind: Any, value: Any, name: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Misfit(f"{name} must be an object")
    return {key: fitted(kind, each, f"{name}.{key}") for key, each in value.items()}


def wrong_names(names: Sequence[str]) -> str:
    """What is wrong with the names of classes, in half a sentence; empty if nothing is."""
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
