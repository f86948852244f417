"""TrainingOptions: a training as a user asks for it, with the command line's options or the keys of a flat recipe file.

    id = "cifar10"
    outliers = "300k"
    epochs = 5

A TrainingSpec then records the images and weights that were really used.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.core.settings import EDGE, SIZE, Name, check
from macs.data.loading import is_validation_part
from macs.data.preparation import NORMALISATIONS, Preparation, preparation_from
from macs.data.spec import DataSpec
from macs.training.recipe import FROM_LIBRARY, PRETRAINING, Recipe
from macs.training.recommended import AUTO, resolved
from macs.training.spec import RANDOM, Start, TrainingSpec, located, read_toml

if TYPE_CHECKING:
    from torch import nn

METHODS = [path.stem.replace("_", "-") for path in sorted((Path(__file__).parents[1] / "methods").glob("[!_]*.py"))]


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
    """Training method: auto (the one that docs/study.md recommends), METHODS, or your own as module:Class."""

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
        """All options on one level, as on the command line."""
        recipe = asdict(self.recipe)
        others = {name: value for name, value in recipe.pop("options").items() if name != "margin"}
        return {**{name: getattr(self, name) for name in _OWN}, "margin": self.margin, "options": others, **recipe}

    def updated(self, changes: Mapping[str, Any]) -> "TrainingOptions":
        """A copy with other values for some options. Another method starts with its own default settings."""
        values = self.flat()
        for key in changes:
            if key not in values:
                raise unknown("recipe key", key, list(values))
        if changes.get("method", self.method) != self.method:
            values |= {"margin": None, "options": {}}
        values |= changes
        if isinstance(values["options"], dict) and "margin" in values["options"] and "margin" not in changes:
            values["margin"] = None
        own = {name: values.pop(name) for name in _OWN}
        return TrainingOptions(**own, recipe=Recipe(**values))

    @classmethod
    def from_toml(cls, path: str | Path, base: "TrainingOptions | None" = None) -> "TrainingOptions":
        """Options from a flat file, with the others from `base`, or from the recipe.toml of a run folder."""
        values, base = read_toml(path), base or cls()
        try:
            return cls.of(TrainingSpec.from_dict(values)) if is_record(values) else base.updated(values)
        except MacsError as error:
            raise located(path, error) from None

    @classmethod
    def of(cls, spec: TrainingSpec) -> "TrainingOptions":
        """The options that repeat this training."""
        outliers = spec.outliers.source if spec.outliers else ""
        return cls(
            id=spec.train.source,
            outliers=outliers,
            net=spec.net,
            checkpoint=spec.start.file,
            normalisation=spec.preparation.normalisation.name
            if spec.complete and not (":" in spec.net or is_from_library(spec.net))
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
        """The network that the training starts from."""
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

    def unverified(self) -> TrainingSpec:
        """A spec without hashes, from names alone, as older runs recorded them."""
        return TrainingSpec(
            train=DataSpec(self.id, "train"),
            outliers=DataSpec(self.outliers, "train", labelled=False) if self.outliers else None,
            net=self.net,
            classes=(),
            preparation=Preparation(size=self.size or SIZE),
            start=Start(self.checkpoint) if self.checkpoint else Start(RANDOM, seed=self.recipe.seed),
            method=self.method,
            recipe=self.recipe,
        )


_OWN = [f.name for f in fields(TrainingOptions) if f.name != "recipe"]
PRETRAINING_OPTIONS = TrainingOptions(method="msp", outliers="", recipe=PRETRAINING)
FROM_LIBRARY_OPTIONS = TrainingOptions(recipe=FROM_LIBRARY)


def preparation_named(net: str, checkpoint: str | Path, size: int | None) -> Preparation:
    """How images are prepared for a network that is known by its name, and perhaps by a checkpoint.

    It is the one in the checkpoint's file, or else the usual one of such a network; a size, if given, adjusts it.
    """
    usual = preparation_from(size, None)  # refuses a size out of bounds before a file is read
    if not checkpoint and not is_from_library(net):
        return usual  # without an import of torch
    from macs import nets

    return (nets.recorded_preparation(checkpoint) or nets.usual_preparation(net)).at_size(size)


def is_from_library(net: str) -> bool:
    """Whether a name refers to another library's network, such as timm/resnet50."""
    return "/" in net and ":" not in net


def refuse_unnamed(file: str | Path, option: str, name: str) -> None:
    """Refuse code that a file names, as module:Name, and the user does not: to import it is to run it."""
    from macs.data.loading import Place

    if ":" in name and (option in ("--net", "--method") or Place(name).kind == "dataset"):
        raise MacsError(
            f"{file} names code of your own, {name}, which is only imported if you name it too; add {option} {name}."
        )


def is_record(values: Mapping[str, Any]) -> bool:
    """Whether these are the tables of a TrainingSpec rather than flat options."""
    return isinstance(values.get("data"), dict) and isinstance(values.get("recipe"), dict)
