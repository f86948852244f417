"""TrainingSpec: data, network, starting weights, method and recipe; everything needed to run a training again.

A run folder records it, it identifies a cell of an experiment, and it can be sent to another process:

    [data.train]         where the ID images come from, and their fingerprint
    [data.outliers]      the same for the outliers, if there are any
    [data.validation]    the same for validation images and, in [data.validation_outliers], for validation outliers
    [network]            name, classes, and the preparation of its images
    [start]              where the starting weights come from, and their hash
    [method]             name, and its settings
    [recipe]             every other hyper-parameter

TrainingOptions is a training as a user asks for it, with the command line's options or the keys of a flat recipe file:

    id = "cifar10"
    outliers = "300k"
    epochs = 5
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from macs.core.errors import MacsError
from macs.core.files import input_file, reason
from macs.core.registry import unknown
from macs.core.settings import Name, check, from_dict
from macs.data.loading import is_validation_part
from macs.data.preparation import EDGE, NORMALISATIONS, Preparation, preparation_from
from macs.data.spec import MEMORY, DataSpec
from macs.training.recipe import AUTO, AUTO_RECIPE, FROM_LIBRARY, PRETRAINING, Recipe, resolved

if TYPE_CHECKING:
    from torch import nn


METHODS = [path.stem.replace("_", "-") for path in sorted((Path(__file__).parents[1] / "methods").glob("[!_]*.py"))]
DEEPEST = 100  # parts of a key in a recipe file
RANDOM = "random"  # the source of starting weights drawn from a seed
# Fields of Recipe that every record has. Any other one changes a training's identity only if it is not at its default,
# so that a new hyper-parameter leaves the identities of earlier trainings as they were.
ALWAYS = (
    *("epochs", "epoch_size", "batch_in", "batch_out", "lr", "final_lr", "momentum", "weight_decay"),
    *("dropout", "augment", "precision", "seed", "options"),
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
        """Return the inverse of `as_dict`; a MacsError says what is missing or wrong."""
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
        """Return the spec in a file that `to_toml` wrote; errors name the file."""
        try:
            return cls.from_dict(read_toml(path))
        except MacsError as error:
            raise located(path, error) from None

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the result of the training; images and weights are given by their hashes.

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
            **{key: value for key, value in recipe.items() if key in ALWAYS or value != getattr(usual, key)},
        }


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return how two identities differ, in words."""
    changed = [key for key in {**ours, **theirs} if theirs.get(key) != ours.get(key)]
    return [IN_WORDS.get(key, f"{key} is {theirs.get(key)!r} there and {ours.get(key)!r} here") for key in changed]


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the tables of a recipe file."""
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
    """Return the error with the path of the file that caused it."""
    return error if str(path) in str(error) else MacsError(f"In {path}: {error}")


def _without_none(values: Any) -> Any:
    """Return the values without None, which TOML cannot represent."""
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


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    id: Name = "cifar10"
    """In-distribution (ID) set to train on: a name from `macs data list`, a folder of images in class folders, a list
    of image files (.txt) or a Hugging Face dataset (hf/NAME)."""

    outliers: str = "300k"
    """Auxiliary outliers: a name from `macs data list`, a folder of images, a list of image files (.txt), a Hugging
    Face dataset (hf/NAME) or a .npy of uint8 images."""

    net: Name = "wrn-40-2"
    """Network: wrn-D-K, allconv, resnet-18, densenet-121 (all for small images), another library's as timm/NAME,
    torchvision/NAME or hf/NAME, or your own as module:Class."""

    checkpoint: str = ""
    """Weights to start from: a file of macs, a run folder, or a public file of OE, energy_ood or margin_ood; for
    another library's network, a file of that library, or the word pretrained [default: random weights]."""

    normalisation: str = ""
    """How the checkpoint's inputs were normalised, where it does not say so itself: oe, openood-cifar10,
    openood-cifar100, kuangliu, imagenet, half, none [default: oe]."""

    method: Name = "macs"
    """Training method: auto (the training that docs/study.md recommends, with its learning rate and --start-share where
    a --checkpoint of ours is the start), METHODS, or your own as module:Class."""

    size: Annotated[int | None, EDGE] = None
    """Edge of the square images, in pixels [default: that of the checkpoint or of a library's network, else 32]."""

    validate: bool = False
    """After each epoch, measure accuracy on the val part of the ID set and, if the outliers have a val part, AUROC."""

    recipe: Recipe = field(default_factory=Recipe)

    def __post_init__(self) -> None:
        check(self)
        if self.method == AUTO:
            method, settings = resolved(self.method, self.recipe.options)
            object.__setattr__(self, "method", method)
            object.__setattr__(self, "recipe", replace(self.recipe, options=settings))
        if ":" not in self.method and self.method not in METHODS:
            raise unknown("method", self.method, [AUTO, *METHODS])
        if self.normalisation and self.normalisation not in NORMALISATIONS:
            raise unknown("normalisation", self.normalisation, list(NORMALISATIONS))

    @property
    def margin(self) -> Any:
        """The margin, if one is given."""
        return self.recipe.options.get("margin")

    def flat(self) -> dict[str, Any]:
        """Return all options on one level, as on the command line."""
        recipe = asdict(self.recipe)
        others = {name: value for name, value in recipe.pop("options").items() if name != "margin"}
        return {**{name: getattr(self, name) for name in _OWN}, "margin": self.margin, "options": others, **recipe}

    def updated(self, changes: Mapping[str, Any]) -> "TrainingOptions":
        """Return a copy with other values for some options. Another method starts with its own default settings."""
        values = self.flat()
        for key in changes:
            if key not in values:
                raise unknown("recipe key", key, list(values))
        if changes.get("method", self.method) != self.method:
            values |= {"margin": None, "options": {}}
        if changes.get("method") == AUTO and changes.get("checkpoint", self.checkpoint):
            values |= {} if is_from_library(changes.get("net", self.net)) else AUTO_RECIPE
        values |= changes
        if isinstance(values["options"], dict) and "margin" in values["options"] and "margin" not in changes:
            values["margin"] = None
        own = {name: values.pop(name) for name in _OWN}
        return TrainingOptions(**own, recipe=Recipe(**values))

    @classmethod
    def from_toml(cls, path: str | Path, base: "TrainingOptions | None" = None) -> "TrainingOptions":
        """Return options from a flat file, with the others from `base`, or from the recipe.toml of a run folder."""
        values, base = read_toml(path), base or cls()
        try:
            recorded = isinstance(values.get("data"), dict) and isinstance(values.get("recipe"), dict)
            return cls.of(TrainingSpec.from_dict(values)) if recorded else base.updated(values)
        except MacsError as error:
            raise located(path, error) from None

    @classmethod
    def of(cls, spec: TrainingSpec) -> "TrainingOptions":
        """Return the options that repeat this training."""
        outliers = spec.outliers.source if spec.outliers else ""
        return cls(
            id=spec.train.source,
            outliers=outliers,
            net=spec.net,
            checkpoint=spec.start.file,
            normalisation=spec.preparation.normalisation.name
            if not (":" in spec.net or is_from_library(spec.net))
            else "",
            method=spec.method,
            size=spec.preparation.size,
            validate=spec.validation is not None and is_validation_part(spec.validation),
            recipe=spec.recipe,
        )

    @property
    def preparation(self) -> Preparation:
        """How its images are prepared."""
        return preparation_named(self.net, self.checkpoint, self.size)

    def starting_net(self, classes: int) -> "nn.Module":
        """Return the network that the training starts from."""
        from macs import nets
        from macs.training.sources import starting_net

        net = starting_net(
            self.net,
            classes,
            checkpoint=self.checkpoint,
            dropout=self.recipe.dropout,
            seed=self.recipe.seed,
            normalisation=self.normalisation or None,
            preparation=self.preparation if is_from_library(self.net) else None,
        )
        nets.set_geometry(net, self.preparation)
        return net


_OWN = [f.name for f in fields(TrainingOptions) if f.name != "recipe"]
PRETRAINING_OPTIONS = TrainingOptions(method="msp", outliers="", recipe=PRETRAINING)
FROM_LIBRARY_OPTIONS = TrainingOptions(recipe=FROM_LIBRARY)


def preparation_named(net: str, checkpoint: str | Path, size: int | None) -> Preparation:
    """Return how images are prepared for a network that is known by its name, and perhaps by a checkpoint.

    It is the one in the checkpoint's file, or else the usual one of such a network; a size, if given, adjusts it.
    """
    usual = preparation_from(size, None)  # refuses a size out of bounds before a file is read
    if not checkpoint and not is_from_library(net):
        return usual  # without an import of torch
    from macs import nets

    return (nets.recorded_preparation(checkpoint) or nets.usual_preparation(net)).at_size(size)


def is_from_library(net: str) -> bool:
    """Return whether a name refers to another library's network, such as timm/resnet50."""
    return "/" in net and ":" not in net


def refuse_unnamed(file: str | Path, option: str, name: str) -> None:
    """Refuse code that a file names, as module:Name, and the user does not: to import it is to run it."""
    from macs.data.loading import Place

    if ":" in name and (option in ("--net", "--method") or Place(name).kind == "dataset"):
        raise MacsError(
            f"{file} names code of your own, {name}, which is only imported if you name it too; add {option} {name}."
        )
