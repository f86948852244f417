"""Wide residual networks for small images: wrn-d-k has d convolutional layers, k times as wide as a plain ResNet's.

    x -> x + conv2(dropout(relu(bn2(conv1(relu(bn1(x)))))))                    in three groups of (d - 4) / 6 blocks

Zagoruyko, Komodakis: Wide Residual Networks, BMVC 2016. Parameter names are those of the public checkpoints.
"""

from collections import OrderedDict
from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

from macs.core.errors import MacsError
from macs.nets import Net, net
from macs.nets._network import ReluDropout, conv, conv_norm

MOST_PARAMETERS = 1_000_000_000  # 4 GB of weights


class WideBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu_dropout = ReluDropout(dropout)
        self.conv2 = conv(outputs, outputs, 3)
        self.convShortcut = conv(inputs, outputs, 1, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = relu(self.bn1(x), inplace=True)
        # If the width changes, the shortcut also starts after the activation.
        shortcut = x if self.convShortcut is None else self.convShortcut(active)
        change: Tensor = self.conv2(self.relu_dropout(conv_norm(self.conv1, self.bn2, active)))
        return change.add_(shortcut)


@net("wrn")
class WideResNet(Net):
    examples: ClassVar = ("wrn-40-2",)

    def __init__(self, depth: int, width: int, *, classes: int, dropout: float = 0.3) -> None:
        if depth < 10 or depth % 6 != 4 or width < 1:
            what = "the depth must be 6 n + 4 (10, 16, ..., 28, 34, 40) and the width at least 1"
            raise MacsError(f"Cannot build 'wrn-{depth}-{width}': {what}.")
        blocks, widths = (depth - 4) // 6, (16, 16 * width, 32 * width, 64 * width)
        size = 18 * blocks * sum(channels**2 for channels in widths[1:]) + widths[3] * classes
        if size > MOST_PARAMETERS:  # refused before they are allocated
            limit = f"about {size:.0e} parameters, but {MOST_PARAMETERS:.0e} is the limit"
            raise MacsError(f"wrn-{depth}-{width} with {classes} classes would have {limit}; check its numbers.")
        super().__init__(f"wrn-{depth}-{width}", classes)
        self.conv1 = conv(3, 16, 3)
        self.block1 = _group(blocks, widths[0], widths[1], 1, dropout)
        self.block2 = _group(blocks, widths[1], widths[2], 2, dropout)
        self.block3 = _group(blocks, widths[2], widths[3], 2, dropout)
        self.bn1 = nn.BatchNorm2d(widths[3])
        self.fc = nn.Linear(widths[3], classes)
        self.initialise()

    def features(self, pixels: Tensor) -> Tensor:
        x = self.conv1(self.normalise(pixels))
        x = self.block3(self.block2(self.block1(x)))
        return relu(self.bn1(x), inplace=True).mean(dim=(2, 3))


def _group(blocks: int, inputs: int, outputs: int, stride: int, dropout: float) -> nn.Sequential:
    """Blocks of one resolution, named layer.0, layer.1, ... as in the public checkpoints."""
    first, rest = WideBlock(inputs, outputs, stride, dropout), range(blocks - 1)
    layer = nn.Sequential(first, *(WideBlock(outputs, outputs, 1, dropout) for _ in rest))
    return nn.Sequential(OrderedDict(layer=layer))
