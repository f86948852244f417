"""Recipe: every hyper-parameter of a run, in one frozen dataclass.

It is written as `recipe.toml` beside the run's results, and the command line's options are its fields. A key that does
not exist or a value of the wrong type is an error; there is no other configuration.
"""

import json
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from macs.core.errors import MacsError
from macs.core.registry import unknown

METHODS = [path.stem for path in sorted((Path(__file__).parents[1] / "methods").glob("[!_]*.py"))]


def typed(name: str, value: Any, kind: Any) -> Any:
    """The value as its declared type, or an error; whole numbers may be written either way."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    for option in options:
        if get_origin(option) is Literal:
            if value in get_args(option):
                return value
        elif get_origin(option) is dict:
            if isinstance(value, dict):
                return value
        elif option is float and type(value) is int:
            return float(value)
        elif option is int and type(value) is float and value.is_integer():
            return int(value)
        elif type(value) is option:
            return value
    wanted = " or ".join(
        ", ".join(get_args(option)) if get_origin(option) is Literal else getattr(option, "__name__", str(option))
        for option in options
        if option is not type(None)
    )
    raise MacsError(f"{name} must be {wanted}, not {value!r}.")


@dataclass(frozen=True)
class Recipe:
    """The defaults are the paper's protocol for fine-tuning."""

    id: str = "cifar10"
    """In-distribution (ID) set to train on: a name from `macs data list`, or a folder of images in class folders."""

    outliers: str = "300k"
    """Auxiliary outliers: a name from `macs data list`, a folder of images, or a .npy of uint8 images."""

    net: str = "wrn-40-2"
    """Network: wrn-D-K, allconv, resnet-18, densenet-121 (all for small images), or your own as module:Class."""

    checkpoint: str = ""
    """Weights to start from: ours, a run folder, or the public OE, energy_ood and margin_ood files; else random."""

    method: str = "macs"
    """What a training step minimises: msp, oe, energy, mixoe, divoe, macs, or your own as module:Class."""

    margin: float | None = None
    """The margin m of MaCS, at least 0 and below 1; without it the method's own default."""

    options: dict[str, float | str] = field(default_factory=dict)
    """Other settings of the method, for example --options.weight 0.3; docs/methods.md lists them."""

    epochs: int = 10
    """Passes over the ID training images."""

    epoch_size: int = 0
    """ID images an epoch, drawn afresh each time; 0 is all of them."""

    batch_in: int = 128
    """ID images a step."""

    batch_out: int = 128
    """Outliers a step, passed through the network together with the ID images."""

    lr: float = 0.001
    """Learning rate of the first step; it falls along a cosine to final_lr, step by step."""

    final_lr: float = 1e-6
    """Learning rate of the last step."""

    momentum: float = 0.9
    """Nesterov momentum of SGD."""

    weight_decay: float = 5e-4
    """Weight decay on every parameter."""

    dropout: float | None = None
    """Dropout of the network; without it the network's own (WRN 0.3, AllConv 0.5)."""

    augment: Literal["auto", "crop-flip", "crop", "none"] = "auto"
    """Training augmentation; auto is crop-flip, but only crop where a mirror image means something else (digits)."""

    size: int = 32
    """Edge of the square images, in pixels."""

    precision: Literal["auto", "bf16", "float32"] = "auto"
    """Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster than float32."""

    seed: int = 0
    """Decides every random number of the run."""

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(Recipe).items():
            object.__setattr__(self, name, typed(name, getattr(self, name), kind))
        if self.margin is not None and not 0 <= self.margin < 1:
            raise MacsError(f"The margin must be at least 0 and below 1, not {self.margin}.")
        for name in ("epochs", "batch_in", "size"):
            if getattr(self, name) < 1:
                raise MacsError(f"{name} must be at least 1, not {getattr(self, name)}.")
        for name in ("epoch_size", "batch_out", "lr", "final_lr", "momentum", "weight_decay", "seed"):
            if not getattr(self, name) >= 0:
                raise MacsError(f"{name} must not be negative, but is {getattr(self, name)}.")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise MacsError(f"dropout must be at least 0 and below 1, not {self.dropout}.")
        if ":" not in self.method and self.method not in METHODS:
            raise unknown("method", self.method, METHODS)

    def to_toml(self) -> str:
        """The recipe as it stands in a run folder; fields that are None are left out."""
        flat = {key: value for key, value in asdict(self).items() if value is not None and key != "options"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in flat.items()]
        if self.options:
            lines += ["", "[options]", *(f"{key} = {json.dumps(value)}" for key, value in self.options.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | Path) -> "Recipe":
        """Read a recipe.toml; the error for a bad one names the file."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise MacsError(f"There is no recipe at {path}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise MacsError(f"Cannot read the recipe {path}: {error}.") from None
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise MacsError(f"{unknown('recipe key', key, known)} It stands in {path}.")
        try:
            return cls(**values)
        except MacsError as error:
            raise MacsError(f"{error} It stands in {path}.") from None


PRETRAINING = Recipe(method="msp", epochs=100, lr=0.1, batch_out=0, outliers="")
"""A plain classifier from scratch, as the authors of outlier exposure train theirs."""
