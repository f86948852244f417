"""Recipe: every hyper-parameter of a run, in one frozen dataclass.

It is written as `recipe.toml` beside the run's results, and the command line's options are its fields. A key that does
not exist or a value of the wrong type is an error; there is no other configuration.
"""

import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Literal

import tomli_w

from macs.core.errors import MacsError
from macs.core.files import input_file, reason
from macs.core.registry import unknown
from macs.core.settings import SIZE, Edge, Name, Span, check

METHODS = [path.stem for path in sorted((Path(__file__).parents[1] / "methods").glob("[!_]*.py"))]


Rate = Annotated[float, Span(0, 1000, usual=0.5)]


@dataclass(frozen=True)
class Recipe:
    """The defaults are the paper's protocol for fine-tuning."""

    id: Name = "cifar10"
    """In-distribution (ID) set to train on: a name from `macs data list`, or a folder of images in class folders."""

    outliers: str = "300k"
    """Auxiliary outliers: a name from `macs data list`, a folder of images, or a .npy of uint8 images."""

    net: Name = "wrn-40-2"
    """Network: wrn-D-K, allconv, resnet-18, densenet-121 (all for small images), or your own as module:Class."""

    checkpoint: str = ""
    """Weights to start from: ours, a run folder, or the public OE, energy_ood and margin_ood files; else random."""

    method: Name = "macs"
    """What a training step minimises: msp, oe, energy, mixoe, divoe, macs, or your own as module:Class."""

    margin: Annotated[float | None, Span(0, 1, open="most")] = None
    """The margin m of MaCS, at least 0 and below 1; without it the method's own default."""

    options: dict[str, float | str | bool] = field(default_factory=dict)
    """Other settings of the method, for example --options.weight 0.3; docs/methods.md lists them."""

    epochs: Annotated[int, Span(1, 100_000)] = 10
    """Passes over the ID training images."""

    epoch_size: Annotated[int, Span(0, 10**9)] = 0
    """ID images per epoch, drawn afresh each time; 0 is all of them."""

    batch_in: Annotated[int, Span(1, 100_000)] = 128
    """ID images per step."""

    batch_out: Annotated[int, Span(0, 100_000)] = 128
    """Outliers per step."""

    lr: Rate = 0.001
    """Learning rate of the first step; it falls along a cosine to final_lr, step by step."""

    final_lr: Rate = 1e-6
    """Learning rate of the last step."""

    momentum: Annotated[float, Span(0, 1, open="most", usual=0.99)] = 0.9
    """Nesterov momentum of SGD."""

    weight_decay: Annotated[float, Span(0, 100, usual=0.01)] = 5e-4
    """Weight decay on every parameter."""

    dropout: Annotated[float | None, Span(0, 1, open="most", usual=0.9)] = None
    """Dropout of the network; without it the network's own (WRN 0.3, AllConv 0.5)."""

    augment: Literal["auto", "crop-flip", "crop", "resized-crop", "none"] = "auto"
    """Training augmentation; auto is crop-flip, but only crop where a mirror image means something else (digits);
    resized-crop cuts a random part from the original picture."""

    size: Edge = SIZE
    """Edge of the square images, in pixels."""

    precision: Literal["auto", "bf16", "float32"] = "auto"
    """Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster than float32."""

    seed: Annotated[int, Span(0, 2**63 - 1)] = 0
    """Decides every random number of the run."""

    def __post_init__(self) -> None:
        check(self)
        if ":" not in self.method and self.method not in METHODS:
            raise unknown("method", self.method, METHODS)

    def to_toml(self) -> str:
        """The recipe as it stands in a run folder; fields that are None are left out."""
        given = {key: value for key, value in asdict(self).items() if value is not None}
        return tomli_w.dumps(given if self.options else {key: given[key] for key in given if key != "options"})

    @classmethod
    def from_toml(cls, path: str | Path, base: "Recipe | None" = None) -> "Recipe":
        """Read a recipe.toml; what it leaves open is as in `base`. The error for a bad one names the file."""
        path = input_file(path, "recipe")
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError:
            raise MacsError(f"Cannot read the recipe {path}: it is not a text in UTF-8.") from None
        except RecursionError:
            raise MacsError(f"Cannot read the recipe {path}: its values are nested too deeply.") from None
        except OSError as error:
            raise MacsError(f"Cannot read the recipe {path}: {reason(error)}.") from None
        except ValueError as error:  # no TOML, or a number with thousands of digits
            raise MacsError(f"Cannot read the recipe {path}: {str(error).split(';')[0]}.") from None
        known = [f.name for f in fields(cls)]
        for key in values:
            if key not in known:
                raise MacsError(f"{unknown('recipe key', key, known)} It stands in {path}.")
        try:
            return replace(base or cls(), **values)
        except MacsError as error:
            raise MacsError(f"{error} It stands in {path}.") from None


PRETRAINING = Recipe(method="msp", epochs=100, lr=0.1, batch_out=0, outliers="")
"""A plain classifier from scratch, as the authors of outlier exposure train theirs."""
