"""Training methods, which define the loss of a training step: one file per method.

The training loop knows a method only through `Method`. Most methods are a `loss` of the logits; one that changes the
images first (MixOE, DivOE) overrides `step`; one that must run the network before training (Energy) overrides
`prepare`; one whose fields change during training (DAL) returns its successor with every step. A method's fields are
its hyper-parameters: their annotations say which values they may have, and their defaults are those of the method's
authors.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.processes import ALONE, Processes
from macs.core.registry import Registry, unknown, users_code
from macs.core.settings import check


@dataclass(frozen=True)
class Batch:
    """Augmented images and outliers, each N x 3 x H x W with pixels in [0, 1]; their numbers may differ.

    Where several processes train one network, each has its own rows of the batch, but the loss covers all rows:
    `of_all_images` and `of_all_outliers` gather values such as logits from the rows of every process.
    """

    images: Tensor
    labels: Tensor
    outliers: Tensor
    processes: Processes = ALONE
    of_all: tuple[Tensor, int] | None = None  # labels and number of outliers of all processes

    @classmethod
    def part(cls, processes: Processes, images: Tensor, all_labels: Tensor, outliers: Tensor, count: int) -> Self:
        """The rows of a process in a batch with these labels and `count` outliers."""
        return cls(images, all_labels[processes.part], outliers, processes, (all_labels, count))

    @property
    def all_labels(self) -> Tensor:
        """The labels of the images of all processes."""
        return self.labels if self.of_all is None else self.of_all[0]

    @property
    def outlier_count(self) -> int:
        """The number of outliers of all processes."""
        return len(self.outliers) if self.of_all is None else self.of_all[1]

    def of_all_images(self, own: Tensor) -> Tensor:
        return self.processes.gathered(own, len(self.all_labels))

    def of_all_outliers(self, own: Tensor) -> Tensor:
        return self.processes.gathered(own, self.outlier_count)


class Step(NamedTuple):
    """The loss to minimise, and the logits of all rows, from which the metrics of the epoch are computed.

    A method whose fields change from step to step adds itself with their new values; a resumed run restores them.
    """

    loss: Tensor
    logits_in: Tensor
    logits_out: Tensor
    method: "Method | None" = None


class Method:
    """Subclass it as a frozen dataclass, define `loss`, and register it with `@method("name")`."""

    needs_outliers: ClassVar[bool] = True
    changes_pixels: ClassVar[bool] = False  # if not, a step may get features for images and a last layer for a network

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "step" in vars(cls):  # such a step may change pixels, unless it says otherwise
            cls.changes_pixels = vars(cls).get("changes_pixels", True)

    def __post_init__(self) -> None:
        check(self)

    @property
    def score(self) -> str:
        """The score that its authors use for detection; a subclass may set `score = "energy"`."""
        return "msp"

    @property
    def gap_limit(self) -> float | None:
        """The mean confidence difference (MCD) at which the method stops pushing, if it does."""
        return None

    def prepare(self, net: nn.Module, batch: Batch) -> Self:
        """The method with the settings that it takes from the starting network; `batch` is the first training batch."""
        return self

    def step(self, net: nn.Module, batch: Batch) -> Step:
        """ID images and outliers in one forward pass, then the loss."""
        own_in, own_out = forward_together(net, batch.images, batch.outliers)
        logits_in, logits_out = batch.of_all_images(own_in), batch.of_all_outliers(own_out)
        return Step(self.loss(logits_in, batch.all_labels, logits_out), logits_in, logits_out)

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines neither `loss` nor `step`")


def guarded(method: Method) -> AbstractContextManager[None]:
    """A guard around a method's code: whatever a user's own method raises becomes a MacsError."""
    kind = type(method)
    return nullcontext() if _is_ours(kind) else users_code(f"The method {kind.__name__} failed")


def check_step(step: Any, method: Method, batch: Batch | None = None) -> None:
    """Refuse a wrong step: it must be a loss, which is one number with a gradient, and two sets of logits."""
    complete = isinstance(step, Step) and all(isinstance(part, Tensor) for part in step[:3])
    if not complete or step.loss.numel() != 1 or not step.loss.requires_grad:
        raise MacsError(
            f"The method {type(method).__name__} does not give a loss to minimise; return one number with a gradient."
        )
    if step.method is not None and type(step.method) is not type(method):
        raise MacsError(f"The method {type(method).__name__} must be followed by one of its kind, with other settings.")
    if batch is not None and batch.processes.count > 1 and len(step.logits_in) != len(batch.all_labels):
        raise MacsError(
            f"The method {type(method).__name__} computes its loss from the images of one process; gather the logits "
            "with batch.of_all_images and batch.of_all_outliers, or train on one device."
        )


method: Registry[type[Method]] = Registry("macs.methods", "method")
available = method.available


def forward_together(net: nn.Module, images: Tensor, outliers: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of both from one pass: batch norm must see the mixture, or outlier exposure becomes much weaker."""
    logits = net(torch.cat([images, outliers])).float()
    return logits[: len(images)], logits[len(images) :]


def build(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """The method of this name, or "module:Class", with the settings as its fields."""
    kind, values = method[name], settings or {}
    if not (isinstance(kind, type) and issubclass(kind, Method) and is_dataclass(kind)):
        raise MacsError(f"{name} is not a method: it must be a dataclass and a subclass of macs.methods.Method.")
    known = sorted(f.name for f in fields(kind))
    for setting in values:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known or ["none"])
    missing = [f.name for f in fields(kind) if f.default is f.default_factory is MISSING and f.name not in values]
    if missing:
        raise MacsError(f"{name} has no default for {', '.join(missing)}; set it with --options.{missing[0]}.")
    try:
        return kind(**values)
    except MacsError as error:
        raise MacsError(f"Among the settings of {name}, {error}") from None


def name_of(instance: Method) -> str:
    """The name that builds such a method in any process: our own, or "module:Class" for one that is not ours."""
    kind = type(instance)
    if _is_ours(kind):
        for name, entry in method.entries().items():
            if entry is kind:
                return name
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_ours(kind: type[Method]) -> bool:
    return kind.__module__.startswith(f"{__name__}.")


def settings_of(instance: Method) -> dict[str, Any]:
    """The settings that build such a method; those that are None are left out."""
    values = {field.name: getattr(instance, field.name) for field in fields(cast(Any, instance))}
    return {name: value for name, value in values.items() if value is not None}
