"""Which weights a training changes, and how fast: the frozen part, the optimiser and the learning rates."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import nn

from macs import nets
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.training.recipe import BACKBONE, Recipe

T = TypeVar("T")


@dataclass(frozen=True)
class Frozen:
    """The part of a network that keeps its weights: its parameters, and its modules, which stay in evaluation mode."""

    parameters: list[nn.Parameter] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)

    @contextmanager
    def inside(self, net: nn.Module) -> Iterator[None]:
        """Keep this part of the network frozen; afterwards its parameters require gradients as they did before."""

        def evaluate(*_: object) -> None:
            for module in self.modules:
                module.training = False

        required = [parameter for parameter in self.parameters if parameter.requires_grad]
        # Before every pass, since the loop and some methods put the whole network into training mode.
        hook = net.register_forward_pre_hook(evaluate)
        try:
            for parameter in required:
                parameter.requires_grad_(False)
            yield
        finally:
            hook.remove()
            for parameter in required:
                parameter.requires_grad_(True)


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate, and its highest value."""

    parameters: list[nn.Parameter]
    lr: float


@dataclass(frozen=True)
class Optimisation:
    """How the weights of a network are trained by a recipe."""

    recipe: Recipe
    frozen: Frozen
    groups: list[Group]

    @classmethod
    def of(cls, net: nn.Module, recipe: Recipe, size: int) -> "Optimisation":
        """The tuning of a network for images of this size; a MacsError says what cannot be frozen."""
        needs_head = recipe.freeze == BACKBONE or recipe.head_lr is not None
        head = [*last_layer(net, size).parameters()] if needs_head else []
        frozen = frozen_part(net, recipe.freeze, head)
        kept, last = {*frozen.parameters}, {*head}
        trained = [parameter for parameter in net.parameters() if parameter not in kept]
        if recipe.freeze != "none" and not any(parameter.requires_grad for parameter in trained):
            raise MacsError(
                f"With {recipe.freeze} frozen, {nets.name_of(net)} has no weights left to train; freeze less of it."
            )
        if recipe.head_lr is None:
            return cls(recipe, frozen, [Group(trained, recipe.lr)])
        rest = Group([parameter for parameter in trained if parameter not in last], recipe.lr)
        own = Group([parameter for parameter in trained if parameter in last], recipe.head_lr)
        return cls(recipe, frozen, [group for group in (rest, own) if group.parameters])

    def optimizer(self, device: torch.device) -> torch.optim.Optimizer:
        recipe, fused = self.recipe, device.type in ("cpu", "cuda")
        groups = [{"params": group.parameters, "lr": group.lr} for group in self.groups]
        if recipe.optimizer == "adamw":
            betas = (recipe.momentum, 0.999)
            return torch.optim.AdamW(groups, betas=betas, weight_decay=recipe.weight_decay, fused=fused)
        return torch.optim.SGD(
            groups,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
            fused=fused,
        )

    def set_rates(self, optimizer: torch.optim.Optimizer, step: int, steps: int) -> float:
        """Set the learning rates of a step, counted from the start of training, and return the first of them."""
        rates = [rate_at(step, steps, group.lr, self.recipe) for group in self.groups]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        return rates[0]


def rate_at(step: int, steps: int, highest: float, recipe: Recipe) -> float:
    """The learning rate of a step, counted from the start of training; an epoch has `steps` steps.

    It rises linearly to `highest` during the warm-up, then falls along half a period of a cosine, or rises along one.
    """
    warm = round(recipe.warmup * steps)
    if step < warm:
        return highest * (step + 1) / (warm + 1)
    angle = math.pi * (step - warm) / (recipe.epochs * steps - warm)
    if recipe.cosine == "rising":
        angle += math.pi
    return recipe.final_lr + (highest - recipe.final_lr) * (1 + math.cos(angle)) / 2


def last_layer(net: nn.Module, size: int) -> nn.Linear:
    """The last linear layer of a network for images of this size."""
    if isinstance(net, nets.Net):
        return net.head
    if not any(isinstance(module, nn.Linear) for module in net.modules()):
        raise MacsError(
            f"{nets.name_of(net)} has no linear layer as its last one; leave head_lr out, and freeze layers by name."
        )
    with torch.no_grad():
        head, _, _ = nets.through_head(net.eval(), torch.zeros(1, 3, size, size, device=device_of(net)))
    return head


def frozen_part(net: nn.Module, freeze: str, head: list[nn.Parameter]) -> Frozen:
    """The part that `freeze` names, as in Recipe."""
    if freeze == "none":
        return Frozen()
    if freeze == BACKBONE:
        last = {*head}
        modules = [module for module in net.modules() if not last & {*module.parameters(recurse=False)}]
        return Frozen([parameter for parameter in net.parameters() if parameter not in last], modules)
    whole = net.published if isinstance(net, nets.Net) else net
    layers = {name: module for name, module in whole.named_modules() if name and [*module.parameters()]}
    modules, parameters = [*whole.modules()], [*whole.parameters()]
    if freeze not in layers:
        # Names such as blocks.5, but no layer inside it, and none that ends the network.
        outer = [
            name
            for name, layer in layers.items()
            if not re.search(r"\d\.", name) and [*layer.parameters()][-1] is not parameters[-1]
        ]
        raise unknown(f"layer of {nets.name_of(net)}", freeze, ["none", BACKBONE, *outer])
    # Everything that the network defines up to the end of the layer, except modules that also hold what follows.
    parameters = _up_to({*layers[freeze].parameters()}, parameters)
    modules = _up_to({*layers[freeze].modules()}, modules)
    return Frozen(parameters, [module for module in modules if {*module.parameters()} <= {*parameters}])


def _up_to(part: set[T], items: list[T]) -> list[T]:
    """The items up to and including the last one that belongs to the part."""
    return items[: 1 + max(i for i, item in enumerate(items) if item in part)]
