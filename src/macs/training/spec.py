"""TrainingSpec: data, network, starting weights, method and recipe; all that is needed to run a training again.

It is what a run folder records, what a cell of an experiment is known by, and what is sent to another process:

    [data.train]         where the ID images come from, and their fingerprint
    [data.outliers]      the same for the outliers, where there are any
    [network]            name, classes, and the preparation of its images
    [start]              where the starting weights come from, and their hash
    [method]             name, and its settings
    [recipe]             every other hyper-parameter
"""

import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from macs.core.errors import MacsError
from macs.core.files import input_file, reason
from macs.core.settings import Name, check, from_dict
from macs.data.preparation import Preparation
from macs.data.spec import MEMORY, DataSpec
from macs.training.recipe import Recipe

RANDOM = "random"  # the source of starting weights that a seed decided
WORDS = {
    "train": "other training images",
    "outliers": "other outliers",
    "start": "other starting weights",
    "classes": "other classes",
}


@dataclass(frozen=True)
class Start:
    """The weights that a training starts from."""

    source: Name  # their file, RANDOM or MEMORY
    weights: str = ""  # their hash
    seed: int | None = None  # which decided random ones

    def __post_init__(self) -> None:
        check(self)

    @property
    def file(self) -> str:
        """The file to load, if there is one."""
        return "" if self.source in (RANDOM, MEMORY) else self.source


@dataclass(frozen=True)
class TrainingSpec:
    train: DataSpec
    outliers: DataSpec | None
    net: Name
    classes: tuple[str, ...]
    preparation: Preparation
    start: Start
    method: Name
    recipe: Recipe

    def __post_init__(self) -> None:
        check(self)

    @property
    def complete(self) -> bool:
        """Whether images and starting weights are known by their hashes; older runs recorded names alone."""
        return bool(self.train.fingerprint and self.start.weights)

    def as_dict(self) -> dict[str, Any]:
        """Tables of plain values, for JSON and TOML; what is not set is left out."""
        recipe = asdict(self.recipe)
        told = {
            "data": {"train": self.train.as_dict(), "outliers": self.outliers and self.outliers.as_dict()},
            "network": {"name": self.net, "classes": list(self.classes), "preparation": self.preparation.as_dict()},
            "start": asdict(self.start),
            "method": {"name": self.method, "settings": recipe.pop("options")},
            "recipe": recipe,
        }
        return {table: _given(values) for table, values in told.items()}

    @classmethod
    def from_dict(cls, told: Any) -> "TrainingSpec":
        """What `as_dict` gave; a MacsError says what is missing or wrong."""
        data, network, method = (_table(told, name) for name in ("data", "network", "method"))
        outliers = data.get("outliers")
        recipe = _table(told, "recipe") | {"options": method.get("settings", {})}
        return cls(
            train=DataSpec.from_dict(_table(data, "train")),
            outliers=None if outliers is None else DataSpec.from_dict(outliers),
            net=network.get("name", ""),
            classes=network.get("classes", ()),
            preparation=Preparation.from_dict(_table(network, "preparation")),
            start=from_dict(Start, _table(told, "start")),
            method=method.get("name", ""),
            recipe=from_dict(Recipe, recipe),
        )

    def to_toml(self) -> str:
        return tomli_w.dumps(self.as_dict())

    @classmethod
    def from_toml(cls, path: str | Path) -> "TrainingSpec":
        """What `to_toml` gave, from a file; the error for a bad one names it."""
        try:
            return cls.from_dict(read_toml(path))
        except MacsError as error:
            raise at(path, error) from None

    def identity(self) -> dict[str, Any]:
        """All that decides what the training gives, by name: images and weights by their hashes, wherever they are."""
        told = self.as_dict()
        return {
            "train": self.train.fingerprint,
            "outliers": self.outliers.fingerprint if self.outliers else "",
            "start": self.start.weights,
            "net": self.net,
            "classes": list(self.classes),
            "preparation": told["network"]["preparation"],
            "method": self.method,
            "settings": told["method"].get("settings", {}),
            **asdict(replace(self.recipe, options={})),
        }


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """How two identities differ, in words."""
    changed = [key for key in ours if theirs.get(key) != ours[key]]
    return [WORDS.get(key, f"{key} is {theirs.get(key)!r} there and {ours[key]!r} here") for key in changed]


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a recipe file."""
    path = input_file(path, "recipe")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise MacsError(f"Cannot read the recipe {path}: it is not a text in UTF-8.") from None
    except RecursionError:
        raise MacsError(f"Cannot read the recipe {path}: its values are nested too deeply.") from None
    except OSError as error:
        raise MacsError(f"Cannot read the recipe {path}: {reason(error)}.") from None
    except ValueError as error:  # no TOML, or a number with thousands of digits
        raise MacsError(f"Cannot read the recipe {path}: {str(error).split(';')[0]}.") from None


def at(path: str | Path, error: MacsError) -> MacsError:
    """The error with the name of the file that it was found in."""
    return error if str(path) in str(error) else MacsError(f"{error} It stands in {path}.")


def _given(values: Any) -> Any:
    """Without what is None, which TOML cannot say."""
    if isinstance(values, dict):
        return {key: _given(value) for key, value in values.items() if value is not None}
    return [_given(value) for value in values] if isinstance(values, list | tuple) else values


def _table(values: Any, name: str) -> dict[str, Any]:
    table = values.get(name) if isinstance(values, dict) else None
    if not isinstance(table, dict):
        raise MacsError(f"A training's record needs the table [{name}].")
    return table
