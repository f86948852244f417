"""TrainingSpec: data, network, starting weights, method and recipe; everything needed to run a training again.

A run folder records it, it identifies a cell of an experiment, and it can be sent to another process:

    [data.train]         where the ID images come from, and their fingerprint
    [data.outliers]      the same for the outliers, if there are any
    [data.validation]    the same for validation images and, in [data.validation_outliers], for validation outliers
    [network]            name, classes, and the preparation of its images
    [start]              where the starting weights come from, and their hash
    [method]             name, and its settings
    [recipe]             every other hyper-parameter
"""

import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from macs.core.errors import MacsError
from macs.core.files import input_file, reason
from macs.core.settings import Name, check, from_dict
from macs.data.preparation import Preparation
from macs.data.spec import MEMORY, DataSpec
from macs.training.recipe import Recipe

DEEPEST = 100  # parts of a key in a recipe file
RANDOM = "random"  # the source of starting weights drawn from a seed
# Fields of Recipe that older records lack; at their defaults they do not change a training's identity.
LATER = (
    *("accumulate", "balance", "cosine", "freeze", "head_lr", "jitter", "keep", "optimizer", "warmup"),
    *("outlier_mix", "outlier_quantile", "outlier_sampling", "start_share", "sync_bn"),
)
# Settings that a method got later, with the values that make no difference.
LATER_SETTINGS = {"macs": {"on": "confidence", "focus": 1.0}}
IN_WORDS = {
    "train": "other training images",
    "outliers": "other outliers",
    "validation": "other validation images",
    "validation_outliers": "other validation outliers",
    "start": "other starting weights",
    "classes": "other classes",
}


@dataclass(frozen=True)
class Start:
    """The weights that a training starts from."""

    source: Name  # their file, RANDOM or MEMORY
    weights: str = ""  # their hash
    seed: int | None = None  # of random weights

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
    validation: DataSpec | None = None
    validation_outliers: DataSpec | None = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def complete(self) -> bool:
        """Whether images and starting weights are known by their hashes; older runs recorded names alone."""
        return bool(self.train.fingerprint and self.start.weights)

    def as_dict(self) -> dict[str, Any]:
        """Tables of plain values, for JSON and TOML; None is left out."""
        recipe = asdict(self.recipe)
        tables = {
            "data": {
                "train": self.train.as_dict(),
                "outliers": self.outliers and self.outliers.as_dict(),
                "validation": self.validation and self.validation.as_dict(),
                "validation_outliers": self.validation_outliers and self.validation_outliers.as_dict(),
            },
            "network": {"name": self.net, "classes": list(self.classes), "preparation": self.preparation.as_dict()},
            "start": asdict(self.start),
            "method": {"name": self.method, "settings": recipe.pop("options")},
            "recipe": recipe,
        }
        return {table: _without_none(values) for table, values in tables.items()}

    @classmethod
    def from_dict(cls, tables: Any) -> "TrainingSpec":
        """The inverse of `as_dict`; a MacsError says what is missing or wrong."""
        data, network, method = (_table(tables, name) for name in ("data", "network", "method"))
        recipe = _table(tables, "recipe") | {"options": method.get("settings", {})}
        return cls(
            train=DataSpec.from_dict(_table(data, "train")),
            outliers=_images(data, "outliers"),
            net=network.get("name", ""),
            classes=network.get("classes", ()),
            preparation=Preparation.from_dict(_table(network, "preparation")),
            start=from_dict(Start, _table(tables, "start")),
            method=method.get("name", ""),
            recipe=from_dict(Recipe, recipe),
            validation=_images(data, "validation"),
            validation_outliers=_images(data, "validation_outliers"),
        )

    def to_toml(self) -> str:
        import tomli_w

        return tomli_w.dumps(self.as_dict())

    @classmethod
    def from_toml(cls, path: str | Path) -> "TrainingSpec":
        """The spec in a file that `to_toml` wrote; errors name the file."""
        try:
            return cls.from_dict(read_toml(path))
        except MacsError as error:
            raise located(path, error) from None

    def identity(self) -> dict[str, Any]:
        """Everything that decides the result of the training; images and weights are given by their hashes.

        Settings that came later belong to it only if they are used, so that trainings of earlier versions are found.
        """
        tables, usual, as_before = self.as_dict(), Recipe(), LATER_SETTINGS.get(self.method, {})
        settings = tables["method"].get("settings", {})
        validation = {"validation": self.validation, "validation_outliers": self.validation_outliers}
        recipe = asdict(replace(self.recipe, options={}))
        return {
            "train": self.train.fingerprint,
            "outliers": self.outliers.fingerprint if self.outliers else "",
            **{name: images.fingerprint for name, images in validation.items() if images},
            "start": self.start.weights,
            "net": self.net,
            "classes": list(self.classes),
            "preparation": tables["network"]["preparation"],
            "method": self.method,
            "settings": {key: value for key, value in settings.items() if as_before.get(key) != value},
            **{key: value for key, value in recipe.items() if key not in LATER or value != getattr(usual, key)},
        }


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """How two identities differ, in words."""
    changed = [key for key in {**ours, **theirs} if theirs.get(key) != ours.get(key)]
    return [IN_WORDS.get(key, f"{key} is {theirs.get(key)!r} there and {ours.get(key)!r} here") for key in changed]


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a recipe file."""
    path = input_file(path, "recipe")
    try:
        return _tables(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise MacsError(f"Cannot read the recipe {path}: it is not text in UTF-8.") from None
    except RecursionError:
        raise MacsError(f"Cannot read the recipe {path}: its values are nested too deeply.") from None
    except OSError as error:
        raise MacsError(f"Cannot read the recipe {path}: {reason(error)}.") from None
    except ValueError as error:  # not TOML, or a number with thousands of digits
        raise MacsError(f"Cannot read the recipe {path}: {str(error).split(';')[0]}.") from None


def _tables(text: str) -> dict[str, Any]:
    if any(line.partition("=")[0].count(".") > DEEPEST for line in text.splitlines()):
        raise RecursionError  # the time that tomllib takes grows with the square of a key's parts
    return tomllib.loads(text)


def located(path: str | Path, error: MacsError) -> MacsError:
    """The error with the path of the file that caused it."""
    return error if str(path) in str(error) else MacsError(f"In {path}: {error}")


def _without_none(values: Any) -> Any:
    """The values without None, which TOML cannot represent."""
    if isinstance(values, dict):
        return {key: _without_none(value) for key, value in values.items() if value is not None}
    return [_without_none(value) for value in values] if isinstance(values, list | tuple) else values


def _images(data: dict[str, Any], name: str) -> DataSpec | None:
    return DataSpec.from_dict(data[name]) if name in data else None


def _table(values: Any, name: str) -> dict[str, Any]:
    table = values.get(name) if isinstance(values, dict) else None
    if not isinstance(table, dict):
        raise MacsError(f"A training's record needs the table [{name}].")
    return table
