"""From a name to a network, of ours or of another library.

"wrn-40-2" is the family wrn with the numbers 40 and 2, "timm/resnet50" another library's, "module:Class" a user's own.

An adapter of a library is one file with a subclass of LibraryNet that is registered under the library's name. It
imports the library only when one of its networks is asked for.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from macs.core.console import one_line_about_the_hub
from macs.core.errors import MacsError
from macs.core.registry import Registry, quoted, unknown, users_code
from macs.data.preparation import DEFAULT, Normalisation, Preparation
from macs.nets._network import Net, Normalise, set_dropout

PRETRAINED = "pretrained"  # in place of a checkpoint: the weights that the library itself downloads
State = dict[str, Tensor]


class LibraryNet(Net):
    """A module of another library behind our normalisation; its last linear layer is the head.

    A subclass is built with the library's name for the model, then `classes`, `size` (the edge of the images; None: the
    model's own) and perhaps `config` as keywords.
    """

    guarded: ClassVar = True
    wrapped: nn.Module

    def __init__(self, name: str, classes: int, wrapped: nn.Module, head: object, preparation: Preparation) -> None:
        if not isinstance(head, nn.Linear) or head.out_features != classes:
            raise MacsError(
                f"{name} does not end in one linear layer with an output for each class, so macs cannot tell its "
                "features from its head; choose another network."
            )
        super().__init__(name, classes)
        self.wrapped = wrapped
        self.head_name = next(path for path, module in wrapped.named_modules() if module is head)
        self.preparation = preparation

    @classmethod
    def usual_preparation(cls, model: str) -> Preparation:
        """Return how the library prepares pictures for a model."""
        raise NotImplementedError(f"{cls.__name__} does not define `usual_preparation`")

    @classmethod
    def pretrained(cls, model: str, size: int | None) -> State:
        """Return the weights that the library publishes for a model, for images of this size."""
        raise NotImplementedError(f"{cls.__name__} does not define `pretrained`")

    @property
    def published(self) -> nn.Module:
        return self.wrapped

    @property
    def head(self) -> nn.Linear:
        head = self.wrapped.get_submodule(self.head_name)
        assert isinstance(head, nn.Linear)
        return head

    def features(self, pixels: Tensor) -> Tensor:
        fed: list[Tensor] = []
        hook = self.head.register_forward_pre_hook(lambda _, inputs: fed.append(inputs[0]))
        try:
            self(pixels)
        finally:
            hook.remove()
        return fed[0].flatten(1)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.wrapped(self.normalise(pixels))
        return logits

    def translated(self, state: State) -> State:
        """Return the weights of a public file under the names of the module's parameters."""
        return state

    def with_new_head(self, state: State) -> State | None:
        """Return a state with our head instead of one that is missing or for other classes; None if its head fits."""
        ours = self.wrapped.state_dict()
        names = [key for key in ours if key.startswith(f"{self.head_name}.")]
        if any(key in state and state[key].shape[1:] != ours[key].shape[1:] for key in names):
            return None  # a head for other features belongs to another network
        if all(key in state and state[key].shape == ours[key].shape for key in names):
            return None
        return state | {key: ours[key] for key in names}

    def draw_head(self, seed: int) -> None:
        """Give the head new random weights."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.head.reset_parameters()


def last_defined_linear(module: nn.Module) -> nn.Linear | None:
    """Return the linear layer that was defined last; None if there is none."""
    return next((layer for layer in reversed([*module.modules()]) if isinstance(layer, nn.Linear)), None)


def library(package: str, extra: str) -> Any:
    """Return an installed library, imported; Any, since it may be missing where types are checked."""
    if find_spec(package) is None:
        raise MacsError(f"Networks called {extra}/... need {package}: pip install 'macs-ood[{extra}]'.")
    with (
        torchvision_fits(package),
        users_code(f"{package} is installed but cannot be imported (does it fit torch {torch.__version__}?)"),
    ):
        return importlib.import_module(package)


@contextmanager
def torchvision_fits(user: str) -> Iterator[None]:
    """A guard around imports of torchvision: the error says so if it was built for another torch."""
    try:
        yield
    except MacsError as error:
        cause: BaseException | None = error
        while cause is not None and "torchvision::" not in str(cause):  # an operator
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise MacsError(
            f"The installed torchvision does not load its operators beside torch {torch.__version__}, so {user} cannot "
            f"be used; {fitting_torchvision(torch.__version__)}"
        ) from error


def fitting_torchvision(torch_version: str) -> str:
    """Return what to run for the torchvision that was built for this torch."""
    public, _, build = torch_version.partition("+")
    index = f", both with the --index-url that your {build} build of torch came from" if build else ""
    return (
        f"run: pip uninstall -y torchvision && pip install torch=={public} torchvision{index} (where that is not "
        "possible, docs/torchvision.md has a few lines of Python to run first)."
    )


class NoShapes(MacsError):
    """The library computes with weights while it builds a network, so it cannot build one on the meta device."""


@contextmanager
def building(name: str) -> Iterator[None]:
    """A guard around the building of a network: whatever the library raises becomes a MacsError."""
    try:
        with users_code(f"Cannot build {name}"):
            yield
    except MacsError as error:
        if torch.get_default_device().type == "meta" and error.__cause__ is not None:
            raise NoShapes(str(error)) from error
        raise


def no_such_model(name: str, model: str, known: Sequence[str]) -> MacsError:
    """Return the error for a model that a library does not have; its hundreds of others are not listed."""
    near = get_close_matches(model, known, n=3)
    hint = f"did you mean {' or '.join(f'{name}/{model}' for model in near)}?" if near else "check its name."
    return MacsError(f"There is no network called {quoted(f'{name}/{model}')} among {name}'s {len(known):,}; {hint}")


@contextmanager
def downloading(name: str, what: str) -> Iterator[None]:
    """A guard around a download: whatever the library raises becomes a MacsError."""
    with (
        torchvision_fits(name),
        one_line_about_the_hub(),
        users_code(
            f"The {what} of {name} cannot be downloaded (check the name and the connection, or give a file of weights, "
            "for commands with --checkpoint)"
        ),
    ):
        yield


def usable_preparation(
    name: str, size: Sequence[int], resize: int, interpolation: str, mean: Sequence[float], std: Sequence[float]
) -> Preparation:
    """Return a library's own configuration as a Preparation; raise if macs cannot do the same."""
    if len({*size}) != 1:
        raise MacsError(f"{name} takes images of {' x '.join(map(str, size))} pixels, but macs prepares squares only.")
    values = {"size": size[0], "resize": resize, "interpolation": interpolation, "mean": [*mean], "std": [*std]}
    try:
        return Preparation.from_dict(values)
    except MacsError as error:
        raise MacsError(f"macs cannot prepare images as {name} needs them: {error}") from None


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
