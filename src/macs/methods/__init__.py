"""What a training step minimises: one file per method.

The training loop knows a method only through this class. Most methods are a `loss` of the logits; one that changes the
images first (MixOE, DivOE) overrides `step`; one that must look at the network before training (Energy) overrides
`prepare`. A method's fields are its hyper-parameters: their annotations say which values they may have, and their
defaults are its own authors' recipe.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.registry import Registry, modules_in, unknown, users_code
from macs.core.settings import check


@dataclass(frozen=True)
class Batch:
    """Augmented images and outliers, perhaps not as many, as N x 3 x H x W with pixels in [0, 1]."""

    images: Tensor
    labels: Tensor
    outliers: Tensor


class Step(NamedTuple):
    """What a step minimises, and the logits that the progress line is computed from."""

    loss: Tensor
    logits_in: Tensor
    logits_out: Tensor


class Method:
    """Subclass it as a frozen dataclass, define `loss`, and register it with `@method("name")`."""

    score: ClassVar[str] = "msp"  # the score that its authors detect with
    needs_outliers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    @property
    def gap_limit(self) -> float | None:
        """The mean confidence difference (MCD) at which the method stops pushing, if it does."""
        return None

    def prepare(self, net: nn.Module, batch: Batch) -> Self:
        """The method with what it takes from the starting network; `batch` is the first one of training."""
        return self

    def step(self, net: nn.Module, batch: Batch) -> Step:
        """ID images and outliers in one forward pass, then the loss."""
        logits_in, logits_out = forward_together(net, batch.images, batch.outliers)
        return Step(self.loss(logits_in, batch.labels, logits_out), logits_in, logits_out)

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} defines neither `loss` nor `step`")


def guarded(method: Method) -> AbstractContextManager[None]:
    """A guard around the work of a method: whatever one of the user's own raises becomes one sentence."""
    kind = type(method)
    ours = kind.__module__.startswith("macs.methods.")
    return nullcontext() if ours else users_code(f"The method {kind.__name__} failed")


def check_step(step: Any, method: Method) -> None:
    """Refuse what cannot be minimised: a step is a loss, one number with a gradient, and two sets of logits."""
    whole = isinstance(step, Step) and all(isinstance(part, Tensor) for part in step)
    if not whole or step.loss.numel() != 1 or not step.loss.requires_grad:
        raise MacsError(
            f"The method {type(method).__name__} gives no loss to minimise: return one number with a gradient."
        )


method: Registry[type[Method]] = Registry("macs.methods", "method")
available = method.available


def forward_together(net: nn.Module, images: Tensor, outliers: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of both from one pass: batch norm must see the mixture, or outlier exposure weakens badly."""
    logits = net(torch.cat([images, outliers])).float()
    return logits[: len(images)], logits[len(images) :]


def build(name: str, settings: Mapping[str, Any] | None = None) -> Method:
    """The method of this name, or "module:Class", with the settings as its fields."""
    chosen, given = method[name], settings or {}
    if not (isinstance(chosen, type) and issubclass(chosen, Method) and is_dataclass(chosen)):
        raise MacsError(f"{name} is not a method: it must be a dataclass and a subclass of macs.methods.Method.")
    known = sorted(f.name for f in fields(chosen))
    for setting in given:
        if setting not in known:
            raise unknown(f"setting of {name}", setting, known or ["none"])
    lacking = [f.name for f in fields(chosen) if f.default is f.default_factory is MISSING and f.name not in given]
    if lacking:
        raise MacsError(f"{name} has no default for {', '.join(lacking)}; set it with --options.{lacking[0]}.")
    try:
        return chosen(**given)
    except MacsError as error:
        raise MacsError(f"Among the settings of {name}, {error}") from None


def name_of(chosen: Method) -> str:
    """The name to build such a method by, in any process: our own, or "module:Class" for one that is not ours."""
    ours = (name for name in modules_in(__name__) if method[name] is type(chosen))
    return next(ours, f"{type(chosen).__module__}:{type(chosen).__qualname__}")


def settings_of(chosen: Method) -> dict[str, Any]:
    """The settings to build such a method with; those that are None are left out."""
    values = {field.name: getattr(chosen, field.name) for field in fields(cast(Any, chosen))}
    return {name: value for name, value in values.items() if value is not None}
