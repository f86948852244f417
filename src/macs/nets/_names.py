"""From a name to a network.

"wrn-40-2" is the family wrn with the numbers 40 and 2, "timm/resnet50" another library's, "module:Class" a user's own.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from torch import nn

from macs.core.errors import MacsError
from macs.core.registry import Registry, unknown, users_code
from macs.data.preparation import DEFAULT, Normalisation, Preparation
from macs.nets._library import LibraryNet
from macs.nets._network import Net, set_dropout
from macs.nets._normalise import Normalise

MOST_CLASSES = 1_000_000  # a larger number is a typing error and would exhaust the memory
net: Registry[type[Net]] = Registry("macs.nets", "network")


def available() -> list[str]:
    """Return names of networks to build; a family may have others, with other numbers."""
    return [name for family in net.available() for name in net[family].examples]


def build(
    name: str,
    classes: int,
    dropout: float | None = None,
    normalisation: Normalisation | str | None = None,
    preparation: Preparation | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    pretrained: bool = False,
    seed: int = 0,
) -> nn.Module:
    """Build a network by its name, with random weights or with those that its library publishes.

    Parameters
    ----------
    name
        A network of ours such as "wrn-40-2", one of a library such as "timm/resnet50", "torchvision/resnet50" or
        "hf/google/vit-base-patch16-224", or your own as "module:Class".
    classes
        Number of classes.
    dropout
        Rate of all dropout layers; by default that of the network's authors.
    normalisation
        A name from `nets.NORMALISATIONS` or a `Normalisation`; by default that of `preparation`.
    preparation
        How pictures become pixels for the network; by default that of its authors, and "oe" for mean and std of our own
        networks.
    config
        For networks that need one besides their name.
    pretrained
        Download the weights that the library publishes. If they are for other classes, the last layer is replaced by a
        random one.
    seed
        Seed of that last layer.

    Returns
    -------
    nn.Module
        The network, which takes float pixels N x 3 x H x W in [0, 1] and returns logits.

    Examples
    --------
    >>> import macs, torch
    >>> net = macs.nets.build("wrn-10-1", classes=3)
    >>> net(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 3])
    """
    if not isinstance(name, str):
        raise MacsError(f"A network must be named by a string, not by a value of type {type(name).__name__}.")
    if pretrained:
        from macs.nets._checkpoints import load_weights  # which builds networks

        _check_published(name, config)
        return load_weights(None, name, classes, dropout, normalisation, preparation, seed)
    _check_classes(classes)
    if dropout is not None and not 0 <= dropout < 1:
        raise MacsError(f"dropout must be at least 0 and below 1, not {dropout}.")
    make, arguments, usage = _find(name)
    options: dict[str, Any] = {"classes": int(classes)}
    try:
        signature = inspect.signature(make)
        takes_dropout = "dropout" in signature.parameters
        if dropout is not None and takes_dropout:
            options["dropout"] = dropout
        if preparation is not None and "size" in signature.parameters and ":" not in name:
            options["size"] = preparation.size
        if config is not None:
            options["config"] = config
        signature.bind(*arguments, **options)
    except (TypeError, ValueError):
        raise MacsError(f"Cannot build {name!r}: {usage}.") from None
    if ":" in name:
        with users_code(f"Cannot build {name!r} by calling it with classes={classes}"):
            module = make(**options)
    else:
        module = make(*arguments, **options)
    if not isinstance(module, nn.Module):
        raise MacsError(f"Cannot build {name!r}: {usage}.")
    if dropout is not None and not takes_dropout:
        set_dropout(module, dropout)
    if preparation is not None:
        cast("Any", module).preparation = preparation
    if normalisation is not None:
        if not isinstance(module, Net):
            raise MacsError(f"{name} is your own network and normalises its pixels itself; leave the setting out.")
        module.normalise = Normalise(normalisation)
    return module


def _check_classes(classes: object) -> None:
    if isinstance(classes, bool) or not isinstance(classes, int | np.integer):
        raise MacsError(f"The number of classes must be a whole number, not {classes!r}.")
    if classes < 2:
        raise MacsError(f"A classifier needs at least 2 classes, not {classes}.")
    if classes > MOST_CLASSES:
        raise MacsError(f"A classifier may have at most {MOST_CLASSES:,} classes, not {classes:,}.")


def _check_published(name: str, config: object) -> None:
    """Refuse a network for which no library publishes weights, and a config beside such weights."""
    if not library_of(name):
        raise MacsError(
            f"{name} has no published weights that macs can download; load a file with nets.load(path, {name!r})."
        )
    if config is not None:
        raise MacsError(f"The published weights of {name} have their own config; leave config out.")


def library_of(name: str) -> tuple[type[LibraryNet], str] | None:
    """Return the adapter of a name such as "timm/resnet50", and the library's own name; None for other names."""
    family, slash, model = name.partition("/")
    if not slash or ":" in name:
        return None
    adapters = {key: entry for key, entry in net.entries().items() if issubclass(entry, LibraryNet)}
    if family not in adapters or not model:
        raise unknown("network", name, available())
    return adapters[family], model


def usual_preparation(name: str) -> Preparation:
    """Return how pictures are prepared for a new network of this name; the default for a user's own."""
    if in_library := library_of(name):
        adapter, model = in_library
        return adapter.usual_preparation(model)
    return DEFAULT


def _find(name: str) -> tuple[Callable[..., nn.Module], list[Any], str]:
    """Return the class or function of a name, its numbers or model, and a hint on how to write the name correctly."""
    if in_library := library_of(name):
        adapter, model = in_library
        return adapter, [model], f"write {' or '.join(adapter.examples)}"
    if ":" in name:
        return net[name], [], "it must be an nn.Module, or a function that makes one, called with classes=... alone"
    family, *numbers = name.split("-")
    ours = family in net.available() and not issubclass(net[family], LibraryNet)
    if not ours or not all(re.fullmatch(r"\d{1,15}", number) for number in numbers):
        raise unknown("network", name, available())
    return net[family], [int(number) for number in numbers], f"write {' or '.join(net[family].examples)}"
