"""From a name to a network: "wrn-40-2" is the family wrn with the numbers 40 and 2, "module:Class" a user's own."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from macs.core.errors import MacsError
from macs.core.registry import Registry, unknown
from macs.nets._base import Net

net: Registry[type[Net]] = Registry("macs.nets", "network")


def available() -> list[str]:
    """Names to build networks by; other numbers do too where the family has them."""
    return [name for family in net.available() for name in net[family].examples]


def build(name: str, classes: int, dropout: float | None = None) -> nn.Module:
    """A network with fresh weights; without `dropout` it has its authors'."""
    if classes < 2:
        raise MacsError(f"A classifier needs at least 2 classes, not {classes}.")
    if dropout is not None and not 0 <= dropout < 1:
        raise MacsError(f"dropout must be at least 0 and below 1, not {dropout}.")
    make, numbers, usage = _find(name)
    options: dict[str, Any] = {"classes": classes}
    try:
        signature = inspect.signature(make)
        if dropout is not None and "dropout" in signature.parameters:
            options["dropout"] = dropout
        elif dropout:
            raise MacsError(f"{name} has no dropout; leave the setting out or make it 0.")
        signature.bind(*numbers, **options)
    except (TypeError, ValueError):
        raise MacsError(f"Cannot build {name!r}: {usage}.") from None
    made = make(*numbers, **options)
    if not isinstance(made, nn.Module):
        raise MacsError(f"Cannot build {name!r}: {usage}.")
    return made


def _find(name: str) -> tuple[Callable[..., nn.Module], list[int], str]:
    """What to call, with which numbers, and how to name it rightly."""
    if ":" in name:
        return net[name], [], "it must be an nn.Module, or a function that makes one, called with classes=... alone"
    family, *numbers = name.split("-")
    if family not in net.available() or not all(number.isdecimal() for number in numbers):
        raise unknown("network", name, available())
    return net[family], [int(number) for number in numbers], f"write {' or '.join(net[family].examples)}"
