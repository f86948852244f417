"""The base class of our networks, and functions for any nn.Module that returns logits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import conv2d, relu

from macs.core.console import warn
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.core.registry import unknown, users_code
from macs.data.imageset import ImageSet
from macs.data.preparation import DEFAULT, NORMALISATIONS, Normalisation, Preparation

USUAL = "oe"


def normalisation(values: Normalisation | str) -> Normalisation:
    """Return a normalisation, given as its values or by its public name."""
    if isinstance(values, str):
        if values not in NORMALISATIONS:
            raise unknown("normalisation", values, list(NORMALISATIONS))
        return NORMALISATIONS[values]
    return DEFAULT.normalised(values).normalisation


class Normalise(nn.Module):
    """(pixels - mean) / std per channel, as the first layer, so that normalisation cannot be forgotten.

    Weights belong to a mean and std: with another normalisation, a network still gives an output, but a wrong one. So
    mean and std are part of a network's preparation, are stored in every file that holds one, and have names for public
    files.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, values: Normalisation | str = USUAL) -> None:
        super().__init__()
        values = normalisation(values)
        # Not persistent, so that the state dict has exactly the names of the public checkpoints.
        self.register_buffer("mean", torch.tensor(values.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(values.std).view(3, 1, 1), persistent=False)

    @property
    def values(self) -> Normalisation:
        """The values of the buffers, even if they were changed by hand, in the fewest digits that identify them."""
        mean, std = (buffer.detach().float().cpu().flatten().expand(3).numpy() for buffer in (self.mean, self.std))
        (r, g, b), (dr, dg, db) = ([float(str(value)) for value in part] for part in (mean, std))
        return Normalisation((r, g, b), (dr, dg, db))

    def forward(self, pixels: Tensor) -> Tensor:
        if not pixels.is_floating_point():  # bytes would not fail, but give wrong outputs
            raise MacsError(f"A network takes float pixels in [0, 1], not {pixels.dtype}: divide the bytes by 255.")
        return (pixels - self.mean) / self.std


DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class Dropout(nn.Dropout):
    """nn.Dropout, but several times as fast on a CPU, where drawing one random number per activation is slow.

    One 64-bit draw of torch's generator decides on eight activations. The rate is rounded to 1/256, and the remaining
    activations are scaled by the rounded rate, so that the expectation is exact.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or not _is_dense(x):
            return super().forward(x)
        mask, scale = _dropout_mask(x, self.p)
        return x * mask.mul_(scale)


class ReluDropout(nn.Dropout):
    """relu, in place, and dropout in one step. On a CPU the output serves for both gradients, and no mask is stored:

    y = scale * mask * relu(x),    dy/dx = scale where y > 0, else 0
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or not _is_dense(x):
            return super().forward(relu(x, inplace=True))
        y: Tensor = _ReluDropout.apply(x, self.p)
        return y


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        mask, ctx.scale = _dropout_mask(x, rate)
        torch.addcmul(x.new_zeros(()), x.relu_(), mask, value=ctx.scale, out=x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        slope: Tensor = torch.ops.aten.threshold_backward(grad, y, 0)
        return slope.mul_(ctx.scale), None


def _dropout_mask(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Ones and zeros in the shape and memory order of x, and the factor that compensates for the zeros."""
    dropped = min(max(round(rate * 256), 1), 255)
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    numbers = draws.view(torch.uint8)[: x.numel()].as_strided(x.shape, x.stride())
    return (numbers >= dropped).to(x.dtype), 256 / (256 - dropped)


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or (x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last))


class Net(nn.Module):
    """A network whose last layer `fc` maps `features` to logits.

    A subclass takes its family's numbers, then `classes` and, if it has dropout, `dropout` as keywords; it defines
    `fc` and `features`, which begins with `self.normalise`.
    """

    examples: ClassVar[tuple[str, ...]] = ()  # names that `available` lists
    public_names: ClassVar[dict[str, str]] = {}  # parts of names in public checkpoints -> ours
    public_normalisation: ClassVar[str | None] = USUAL  # of public checkpoints; None if they differ
    config: dict[str, Any] | None = None  # what is needed besides its name to build it
    guarded: ClassVar[bool] = False  # whether its code is not ours, so that its errors must become MacsErrors
    fc: nn.Linear

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        self.name, self.classes = name, int(classes)
        self.normalise = Normalise()
        self._geometry: Preparation | None = None  # not declared yet: the images of the first use decide

    @property
    def preparation(self) -> Preparation:
        """How a picture becomes the network's input, with the mean and std of its first layer."""
        if not isinstance(self.normalise, Normalise):
            kind = type(self.normalise).__name__
            raise MacsError(
                f"The normalisation of this {self.name} was replaced by {kind}; make it a nets.Normalise(...)."
            )
        return (self._geometry or DEFAULT).normalised(self.normalise.values)

    @preparation.setter
    def preparation(self, preparation: Preparation) -> None:
        self._geometry = preparation.geometry
        if self.normalise.mean.is_meta or self.normalise.values != preparation.normalisation:
            self.normalise = Normalise(preparation.normalisation).to(self.normalise.mean.device)

    @property
    def published(self) -> nn.Module:
        """The module whose parameters have the names of public checkpoints."""
        return self

    @property
    def head(self) -> nn.Linear:
        return self.fc

    @property
    def dropout(self) -> float:
        return next((module.p for module in self.modules() if isinstance(module, DROPOUTS)), 0.0)

    def features(self, pixels: Tensor) -> Tensor:
        """N x 3 x H x W pixels in [0, 1] -> the N x D input of the last layer."""
        raise NotImplementedError(f"{type(self).__name__} does not define `features`")

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(pixels))
        return logits

    def initialise(self) -> None:
        """He-normal convolutions, by fan-out; batch norms start as the identity, the last layer without bias."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.fc.bias)


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution that changes the size by the stride alone; it has no bias, which batch norm makes redundant."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def conv_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """norm(conv(x)); in inference mode one convolution with scaled weights, which saves a pass over the activations.

        (conv(x) - mean) / sqrt(var + eps) * weight + bias

    In inference mode neither layer is called, so that hooks on them do not run; under torch.no_grad they do. Under
    autocast both layers are called: scaled weights, rounded to bf16, would give other results.
    """
    rounds = torch.is_autocast_enabled(x.device.type)
    if norm.training or rounds or not torch.is_inference_mode_enabled():
        normed: Tensor = norm(conv(x))
        return normed
    assert norm.running_mean is not None and norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    mean = norm.running_mean if conv.bias is None else norm.running_mean - conv.bias
    return conv2d(x, conv.weight * scale.view(-1, 1, 1, 1), norm.bias - mean * scale, conv.stride, conv.padding)


def name_of(net: nn.Module) -> str:
    """The name that builds such a network: "wrn-40-2", or "module:Class" for one that is not ours."""
    return net.name if isinstance(net, Net) else f"{type(net).__module__}:{type(net).__qualname__}"


def preparation_of(net: nn.Module) -> Preparation | None:
    """The preparation that a network declares; None if it declares none, as a user's own may."""
    if isinstance(net, Net):
        return net.preparation
    declared = getattr(net, "preparation", None)
    return declared if isinstance(declared, Preparation) else None


def set_geometry(net: nn.Module, preparation: Preparation) -> None:
    """Let one of our networks take images of this preparation, with its own mean and std; leave a user's own alone."""
    if isinstance(net, Net):
        net.preparation = preparation.normalised(net.preparation.normalisation)


def prepared_for(net: nn.Module, images: ImageSet, like: ImageSet | None = None) -> ImageSet:
    """The images as a network expects them, prepared again from their source if they were prepared in another way.

    If the network declares no preparation, it takes images as they are; pictures are then prepared as those of `like`.
    """
    undeclared = isinstance(net, Net) and net._geometry is None
    wanted = None if undeclared else preparation_of(net)
    if wanted is None and like is not None and images.preparation is not None:
        wanted = like.preparation or Preparation(like.size)
    if wanted is not None and images.preparation is None and images.size < wanted.size:
        warn(
            f"{images.name} holds pixels of size {images.size}, which are enlarged to the network's {wanted.size} and "
            "look unlike the pictures that it knows; give the pictures themselves, as files or PIL images."
        )
    return images if wanted is None else images.resized(wanted)


def preparation_for(net: nn.Module, images: ImageSet) -> Preparation:
    """The preparation of pictures for a network that was trained or calibrated on these images.

    It is that of the images, if they have one; else the network's own, if it is for this size; else the default for
    this size. Mean and std are always the network's own.
    """
    own = preparation_of(net) or DEFAULT
    geometry = images.preparation or (own if own.size == images.size else Preparation(images.size))
    return geometry.normalised(own.normalisation)


def set_dropout(net: nn.Module, dropout: float, shape: tuple[int, ...] | None = None) -> None:
    """Give every dropout layer of a network this rate.

    Dropout that is not a layer, such as a call of torch.nn.functional.dropout, cannot be set. At a rate of 0, a
    warning points it out: with the `shape` of an input it is detected, without it the warning says that it may exist.
    """
    layers = [module for module in net.modules() if isinstance(module, DROPOUTS)]
    if dropout and not layers:
        raise MacsError(f"{name_of(net)} has no dropout layer whose rate could be set; leave the setting out.")
    for layer in layers:
        layer.p = dropout
    if dropout or is_ours(net):
        return
    if shape is not None and _is_random(net, shape):
        warn(
            f"{name_of(net)} is still random in training mode with all its dropout layers at 0: it has dropout that is "
            "not a layer, or another source of randomness; set that in its own code."
        )
    if shape is None and not layers:
        warn(f"{name_of(net)} has no dropout layer to set to 0; dropout that is not a layer stays active.")


@torch.no_grad()
def _is_random(net: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether two passes in training mode differ; norm layers stay in evaluation mode, so that they do not change."""
    modes = {module: module.training for module in net.modules()}
    try:
        for module in modes:
            module.training = not (hasattr(module, "running_mean") and hasattr(module, "running_var"))
        with torch.random.fork_rng():
            pixels = torch.rand(2, *shape, device=device_of(net))
            return not torch.equal(logits_of(net, pixels), logits_of(net, pixels))
    finally:
        for module, mode in modes.items():
            module.training = mode


def require_net(net: object) -> nn.Module:
    """Return the argument; raise if it is not a network."""
    if not isinstance(net, nn.Module):
        raise MacsError(f"A network must be an nn.Module, not of type {type(net).__name__}; make one with nets.build.")
    return net


def is_ours(net: nn.Module) -> bool:
    """Whether a network is our own code, neither the user's nor another library's."""
    return isinstance(net, Net) and not net.guarded


def logits_of(net: nn.Module, pixels: Tensor) -> Tensor:
    """The N x K logits of N images. Errors and wrong outputs of networks that are not ours become MacsErrors."""
    if is_ours(net):
        ours: Tensor = net(pixels)
        return ours
    with running(net, pixels):
        logits = net(pixels)
    return _checked(net, pixels, logits)


def _checked(net: nn.Module, pixels: Tensor, logits: object) -> Tensor:
    """Return the output of a network; raise if it does not have the form of logits."""
    if torch.compiler.is_compiling() and isinstance(logits, Tensor):
        return logits  # a graph that is being traced has no values, and its number of images is symbolic
    if not isinstance(logits, Tensor):
        raise MacsError(f"{name_of(net)} returns a {type(logits).__name__}; return the logits alone, a tensor.")
    shape, images = tuple(logits.shape), len(pixels)
    if len(shape) != 2 or shape[0] != images or shape[1] < 2 or not logits.is_floating_point():
        raise MacsError(
            f"{name_of(net)} gives an output of shape {shape} and type {logits.dtype} for {images} "
            f"image{'s' * (images != 1)}; a classifier gives float logits of shape ({images}, classes)."
        )
    if logits.is_meta or logits.layout is not torch.strided:
        raise MacsError(f"{name_of(net)} returns a tensor that is not dense; return the logits as plain numbers.")
    if logits.isnan().any():
        raise MacsError(f"{name_of(net)} gives logits that are not numbers (NaN); check its weights.")
    return logits


def running(net: nn.Module, pixels: Tensor) -> AbstractContextManager[None]:
    """A guard around a forward pass: whatever a network that is not ours raises becomes a MacsError."""
    if is_ours(net):
        return nullcontext()
    return users_code(f"{name_of(net)} cannot take {' x '.join(map(str, pixels.shape[2:]))} images")


def features_of(net: nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The N x D features, which are the inputs of the last linear layer, and the N x K logits, from one pass."""
    _, features, logits = through_head(net, pixels)
    return features, logits


def through_head(net: nn.Module, pixels: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    """The last linear layer, its N x D inputs (the features), and the N x K logits, from one pass.

    Our networks define this layer, and so do those with timm's `forward_features`, `forward_head` and `get_classifier`.
    For any other network it is the linear layer that ran last.
    """
    if isinstance(net, Net):
        with running(net, pixels):
            features = net.features(pixels)
            return net.head, features, net.head(features)
    classifier = _timm_classifier(net)
    return _split(net, classifier, pixels) if isinstance(classifier, nn.Linear) else _with_hooks(net, pixels)


def _timm_classifier(net: Any) -> object:
    """The last layer of a network that has timm's methods; None for others."""
    names = ("forward_features", "forward_head", "get_classifier")
    return net.get_classifier() if all(callable(getattr(net, name, None)) for name in names) else None


def _split(net: Any, head: nn.Linear, pixels: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    with running(net, pixels):
        features: Tensor = net.forward_head(net.forward_features(pixels), pre_logits=True).flatten(1)
        return head, features, _checked(net, pixels, head(features))


@contextmanager
def last_linear(net: nn.Module) -> Iterator[list[tuple[nn.Linear, Tensor]]]:
    """A list that holds, once a network has run, the linear layer that ran last in it and that layer's inputs."""
    last: list[tuple[nn.Linear, Tensor]] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        if isinstance(module, nn.Linear):
            last[:] = [(module, inputs[0] if inputs else named["input"])]

    linear = [module for module in net.modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in linear]
    try:
        yield last
    finally:
        for hook in hooks:
            hook.remove()


def _with_hooks(net: nn.Module, pixels: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    """The same, from hooks on every linear layer that record its input."""
    with last_linear(net) as last:
        logits = logits_of(net, pixels)
    if not last:
        raise MacsError(f"{name_of(net)} has no linear layer to take features from; use a score of the logits.")
    head, features = last[0]
    return head, features.flatten(1), logits
