"""What all networks share, and the few questions that may be asked of any nn.Module that returns logits."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn.functional import conv2d, relu

from macs.core.errors import MacsError

MEAN = (125.3, 123.0, 113.9)  # of CIFAR's pixels, as every public checkpoint of this line of work expects them
STD = (63.0, 62.1, 66.7)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class Normalise(nn.Module):
    """(pixels - mean) / std, a channel each, as the first layer: nobody has to normalise, and nobody can forget to."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Not persistent, so that the state dict has the names of the public checkpoints and no others.
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1) / 255, persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1) / 255, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        if not pixels.is_floating_point():  # bytes would pass through the arithmetic and give nonsense
            raise MacsError(f"A network takes float pixels in [0, 1], not {pixels.dtype}: divide the bytes by 255.")
        return (pixels - self.mean) / self.std


class Dropout(nn.Dropout):
    """nn.Dropout, but several times as fast on a CPU, where drawing a random number for each activation is slow.

    One 64-bit draw of torch's generator decides on eight activations. The rate is rounded to 1/256, and what is kept
    is scaled by the rounded rate, so that the expectation is exact.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or not _is_dense(x):
            return super().forward(x)
        kept, scale = _kept(x, self.p)
        return x * kept.mul_(scale)


class ReluDropout(nn.Dropout):
    """relu, in place, and dropout at once. On a CPU one tensor is kept for both their gradients, and no mask:

    y = scale * kept * relu(x),    dy/dx = scale where y > 0, else 0
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu" or not _is_dense(x):
            return super().forward(relu(x, inplace=True))
        passed: Tensor = _ReluDropout.apply(x, self.p)
        return passed


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        kept, ctx.scale = _kept(x, rate)
        torch.addcmul(x.new_zeros(()), x.relu_(), kept, value=ctx.scale, out=x)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        slope: Tensor = torch.ops.aten.threshold_backward(grad, y, 0)
        return slope.mul_(ctx.scale), None


def _kept(x: Tensor, rate: float) -> tuple[Tensor, float]:
    """Ones and zeros in the shape and memory order of x, and the factor that makes up for the zeros."""
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

    examples: ClassVar[tuple[str, ...]] = ()  # names worth typing
    public_names: ClassVar[dict[str, str]] = {}  # first parts of names in public checkpoints -> ours
    fc: nn.Linear

    def __init__(self, name: str, classes: int) -> None:
        super().__init__()
        self.name, self.classes = name, int(classes)
        self.normalise = Normalise()

    @property
    def head(self) -> nn.Linear:
        return self.fc

    @property
    def dropout(self) -> float:
        return next((module.p for module in self.modules() if isinstance(module, DROPOUTS)), 0.0)

    def features(self, pixels: Tensor) -> Tensor:
        """N x 3 x H x W pixels in [0, 1] -> the N x D input of the last layer."""
        raise NotImplementedError

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
    """A convolution that keeps the image's size but for the stride; a batch norm beside it makes a bias idle."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def conv_norm(conv: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """norm(conv(x)); in inference mode one convolution with scaled weights, which saves a pass over the activations.

        (conv(x) - mean) / sqrt(var + eps) * weight + bias

    Neither layer is called then, so that hooks on them are silent in inference mode, though not under torch.no_grad.
    Under autocast they are called: rounded to bf16, scaled weights would not say the same.
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
    """The name to build such a network by: "wrn-40-2", or "module:Class" for one that is not ours."""
    return net.name if isinstance(net, Net) else f"{type(net).__module__}:{type(net).__qualname__}"


def set_dropout(net: nn.Module, dropout: float) -> None:
    """Give every dropout layer of a network this rate."""
    layers = [module for module in net.modules() if isinstance(module, DROPOUTS)]
    if dropout and not layers:
        raise MacsError(f"{name_of(net)} has no dropout; leave the setting out or make it 0.")
    for layer in layers:
        layer.p = dropout


def features_of(net: nn.Module, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The N x D features and the N x K logits from one pass; the features feed the linear layer that ran last."""
    _, features, logits = through_head(net, pixels)
    return features, logits


def through_head(net: nn.Module, pixels: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    """The linear layer that ran last in one pass, the N x D features that it was fed, and the N x K logits."""
    if isinstance(net, Net):
        features = net.features(pixels)
        return net.head, features, net.head(features)
    ran: list[tuple[nn.Linear, Tensor]] = []

    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Linear):
            ran[:] = [(module, inputs[0])]

    hooks = [m.register_forward_pre_hook(keep) for m in net.modules() if isinstance(m, nn.Linear)]
    try:
        logits = net(pixels)
    finally:
        for hook in hooks:
            hook.remove()
    if not ran:
        raise MacsError(f"{name_of(net)} has no linear layer to take features from; use a score of the logits.")
    head, features = ran[0]
    return head, features.flatten(1), logits
