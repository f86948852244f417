"""Densely connected networks with the stem for small images: every layer takes the outputs of all before it.

    x -> [conv2(relu(bn2(conv1(relu(bn1(x)))))), x]                 in four stages; between them, half the channels

Huang, Liu, van der Maaten, Weinberger: Densely Connected Convolutional Networks, CVPR 2017. Parameter names are those
of the public CIFAR implementation, whose last layer is called linear; as there, new channels come first.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from macs.core.errors import MacsError
from macs.nets import Net, net
from macs.nets._network import conv, conv_norm

GROWTH = 32  # channels that a layer adds
LAYERS = {121: (6, 12, 24, 16), 169: (6, 12, 32, 32), 201: (6, 12, 48, 32)}


class Layer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv(inputs, 4 * GROWTH, 1)
        self.bn2 = nn.BatchNorm2d(4 * GROWTH)
        self.conv2 = conv(4 * GROWTH, GROWTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        narrow = conv_norm(self.conv1, self.bn2, relu(self.bn1(x), inplace=True))
        return torch.cat([self.conv2(relu(narrow, inplace=True)), x], dim=1)


class Transition(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn = nn.BatchNorm2d(inputs)
        self.conv = conv(inputs, inputs // 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return avg_pool2d(self.conv(relu(self.bn(x), inplace=True)), 2)


@net("densenet")
class DenseNet(Net):
    """The variant for small images, such as CIFAR's: a 3x3 stem, not ImageNet's 7x7 convolution and max-pool."""

    examples: ClassVar = tuple(f"densenet-{depth}" for depth in LAYERS)
    public_names: ClassVar = {"linear": "fc"}
    public_normalisation: ClassVar = None

    def __init__(self, depth: int, *, classes: int) -> None:
        if depth not in LAYERS:
            raise MacsError(f"Cannot build 'densenet-{depth}': write {' or '.join(self.examples)}.")
        super().__init__(f"densenet-{depth}", classes)
        first, second, third, fourth = LAYERS[depth]
        width = 2 * GROWTH
        self.conv1 = conv(3, width, 3)
        self.dense1, width = _stage(first, width)
        self.trans1, width = Transition(width), width // 2
        self.dense2, width = _stage(second, width)
        self.trans2, width = Transition(width), width // 2
        self.dense3, width = _stage(third, width)
        self.trans3, width = Transition(width), width // 2
        self.dense4, width = _stage(fourth, width)
        self.bn = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)
        self.initialise()

    def features(self, pixels: Tensor) -> Tensor:
        x = self.trans1(self.dense1(self.conv1(self.normalise(pixels))))
        x = self.dense4(self.trans3(self.dense3(self.trans2(self.dense2(x)))))
        return relu(self.bn(x), inplace=True).mean(dim=(2, 3))


def _stage(layers: int, width: int) -> tuple[nn.Sequential, int]:
    """Layers of one resolution, and their number of output channels."""
    return nn.Sequential(*(Layer(width + GROWTH * i) for i in range(layers))), width + GROWTH * layers
