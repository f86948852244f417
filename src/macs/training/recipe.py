"""Recipe: the hyper-parameters of a training, in one frozen dataclass.

The TrainingSpec holds it together with the network, the images and the method. An unknown key or a value of the wrong
type is an error. `--method auto` stands for the training that the study recommends (docs/study.md says what it rests
on): a method with its settings and, where a trained network of ours is the start, a learning rate and the share of that
network in the result. A run folder records these themselves, never the word auto.
"""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Literal

from macs.core.errors import MacsError
from macs.core.settings import Name, Span, check, typed

MaCSMargin = Annotated[float | None, Span(0, 1_000_000)]
Rate = Annotated[float, Span(0, 1000, usual=0.5)]
AUTO, METHOD = "auto", "macs"  # as a value of --method, and the method that it stands for
SETTINGS: dict[str, float | str | bool] = {"on": "energy", "variant": "hinge", "margin": 10.0, "margin_weight": 4.0}
AUTO_RECIPE: dict[str, Any] = {"lr": 0.01, "start_share": 0.7}  # for a network of ours that is trained already
BACKBONE = "backbone"  # as a value of `freeze`: all layers but the last


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The defaults are the paper's protocol for fine-tuning."""

    margin: InitVar[MaCSMargin] = None
    """The margin m of MaCS, at least 0 and below 1, or any size with --options.on energy or log-odds; without it the
    method's own default."""

    options: dict[str, float | str | bool] = field(default_factory=dict)
    """Other settings of the method, for example --options.weight 0.3; docs/methods.md lists them."""

    epochs: Annotated[int, Span(1, 100_000)] = 10
    """Passes over the ID training images."""

    epoch_size: Annotated[int, Span(0, 10**9)] = 0
    """ID images per epoch, drawn afresh each time; 0 is all of them."""

    balance: bool = False
    """Draw every class equally often in an epoch, however many images it has."""

    batch_in: Annotated[int, Span(1, 100_000)] = 128
    """ID images per step."""

    batch_out: Annotated[int, Span(0, 100_000)] = 128
    """Outliers per step."""

    outlier_sampling: Literal["random", "hardest"] = "random"
    """Which outliers an epoch draws from: all, or the hardest, on which the network is most confident when the epoch
    begins."""

    outlier_quantile: Annotated[float, Span(0, 1, open="most")] = 0.125
    """With hardest, the share of the most confident outliers that is left out, as they may show a known class."""

    outlier_mix: Literal["none", "diverse"] = "none"
    """Mixing of each outlier with another one of its batch, for any method: none, or diverse (diverseMix)."""

    accumulate: Annotated[int, Span(1, 100_000)] = 1
    """Parts in which a batch passes through the network, to save memory at the cost of time; the loss is still that of
    the whole batch, but batch norm sees each part alone."""

    optimizer: Literal["sgd", "adamw"] = "sgd"
    """SGD with Nesterov momentum, or AdamW."""

    lr: Rate = 0.001
    """Learning rate after the warm-up; from there it falls along a cosine to final_lr, step by step."""

    final_lr: Rate = 1e-6
    """Learning rate of the last step."""

    cosine: Literal["falling", "rising"] = "falling"
    """Direction of the cosine; rising goes from final_lr to lr, as every second margin does in the authors' code."""

    head_lr: Annotated[float | None, Span(0, 1000, usual=0.5)] = None
    """Learning rate of the last layer, in place of lr; without it the last layer learns like the rest."""

    warmup: Annotated[float, Span(0, 100_000)] = 0.0
    """Epochs, perhaps a fraction of one, over which the learning rates first rise linearly from nearly 0."""

    momentum: Annotated[float, Span(0, 1, open="most", usual=0.99)] = 0.9
    """Momentum of SGD; for AdamW, its first beta."""

    weight_decay: Annotated[float, Span(0, 100, usual=0.1)] = 5e-4
    """Weight decay on every parameter that is trained."""

    freeze: Name = "none"
    """Layers whose weights stay fixed: none, backbone (all but the last layer), or a layer by its name in the network,
    such as layer3 or blocks.5, with all layers before it. Frozen batch norm and dropout behave as in evaluation."""

    dropout: Annotated[float | None, Span(0, 1, open="most", usual=0.9)] = None
    """Dropout of the network; without it the network's own (WRN 0.3, AllConv 0.5)."""

    augment: Literal["auto", "crop-flip", "crop", "resized-crop", "none"] = "auto"
    """Training augmentation; auto is crop-flip, but only crop where a mirror image means something else (digits), and
    none with freeze backbone, so that the backbone runs only once per image; resized-crop cuts a random part from the
    original picture."""

    jitter: Annotated[float, Span(0, 1)] = 0.0
    """How much the brightness, contrast and saturation of each training image change at random: by factors between
    1 - jitter and 1 + jitter."""

    sync_bn: bool = False
    """Where several devices train together, let batch norm see the images of all of them, as on one device, at the
    cost of time; else each device's batch norm sees its own images, and the running statistics are averaged."""

    precision: Literal["auto", "bf16", "float32"] = "auto"
    """Arithmetic of the network; auto takes bf16 where the hardware multiplies it faster than float32."""

    keep: Literal["last", "best"] = "last"
    """Epoch whose weights are kept: the last, as in the paper, or the one with the highest mean of validation accuracy
    and validation AUROC, which needs validation."""

    start_share: Annotated[float, Span(0, 1, open="most")] = 0.0
    """Share of the starting weights in the weights that are kept; 0.5 is the mean of the networks before and after the
    training. It brings back accuracy that training with outliers costs, if the network knew its classes before."""

    seed: Annotated[int, Span(0, 2**63 - 1)] = 0
    """Decides every random number of the run."""

    def __post_init__(self, margin: float | None) -> None:
        check(self)
        if self.warmup > self.epochs:
            raise MacsError(f"A warm-up of {self.warmup:g} epochs does not fit into {self.epochs}; shorten it.")
        if margin is None:
            return
        if "margin" in self.options:
            raise MacsError("The margin is given twice, as margin and in the options; give it once.")
        margin = typed("margin", margin, MaCSMargin)
        if margin >= 1 and self.options.get("on", "confidence") == "confidence":
            raise MacsError(
                f"margin must be at least 0 and below 1, not {margin:g}, as confidences differ by less than 1; for a "
                "margin in units of energy, add --options.on energy."
            )
        object.__setattr__(self, "options", {**self.options, "margin": margin})

    def check_validation(self, given: bool) -> None:
        """Refuse to keep the best epoch if nothing says which one is best."""
        if self.keep == "best" and not given:
            raise MacsError(
                "The best epoch is chosen by validation, and there is none; add --validate (in Python, give validation "
                "images), or keep the last epoch."
            )


PRETRAINING = Recipe(epochs=100, lr=0.1, batch_out=0)
"""A plain classifier from scratch, as the authors of outlier exposure train theirs."""

FROM_LIBRARY = Recipe(
    optimizer="adamw", epochs=5, batch_in=32, batch_out=32, lr=3e-4, head_lr=3e-3, warmup=0.5, weight_decay=0.01
)
"""For pretrained networks of other libraries, found with timm's EfficientNet-Lite0 (ImageNet) and MaCS on validation
photographs: 636 of five flowers and 500 outliers.

Batches, epochs and head_lr come from trainings of the last layer alone on 2,809 photographs, lr from trainings of the
upper layers at 96 pixels, measured on every second validation photograph. There, with one seed, 0.001 did better (AUROC
99.8%) than 0.0003 (98.9%), and in shorter trainings 0.0001 and the paper's SGD were far behind; 0.0003 is the default
because transformers, which were not tried, usually need smaller rates. Warm-up, weight decay and augmentation are
customary values that were not compared.
"""


def resolved(method: str, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the method and settings that a name stands for; settings that are given override those of auto."""
    return (METHOD, {**SETTINGS, **settings}) if method == AUTO else (method, dict(settings))
