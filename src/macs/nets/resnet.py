"""Residual networks with the stem for small images: a 3x3 convolution and no pooling before the first block.

    x -> relu(shortcut(x) + bn2(conv2(relu(bn1(conv1(x))))))                                             in four stages

He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016. Parameter names are those of the public
CIFAR implementations, whose last layer is called fc or linear.
"""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn.functional import relu

from macs.core.errors import MacsError
from macs.nets import Net, net
from macs.nets._network import conv, conv_norm

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = relu(conv_norm(self.conv1, self.bn1, x), inplace=True)
        return relu(conv_norm(self.conv2, self.bn2, out) + self.shortcut(x), inplace=True)


@net("resnet")
class ResNet(Net):
    """The variant for small images, such as CIFAR's: a 3x3 stem, not ImageNet's 7x7 convolution and max-pool."""

    examples: ClassVar = tuple(f"resnet-{depth}" for depth in BLOCKS)
    public_names: ClassVar = {"linear": "fc", "downsample": "shortcut"}
    public_normalisation: ClassVar = None

    def __init__(self, depth: int, *, classes: int) -> None:
        if depth not in BLOCKS:
            raise MacsError(f"Cannot build 'resnet-{depth}': write {' or '.join(self.examples)}.")
        super().__init__(f"resnet-{depth}", classes)
        blocks = BLOCKS[depth]
        self.conv1 = conv(3, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(blocks[0], 64, 64, 1)
        self.layer2 = _stage(blocks[1], 64, 128, 2)
        self.layer3 = _stage(blocks[2], 128, 256, 2)
        self.layer4 = _stage(blocks[3], 256, 512, 2)
        self.fc = nn.Linear(512, classes)
        self.initialise()

    def features(self, pixels: Tensor) -> Tensor:
        x = relu(conv_norm(self.conv1, self.bn1, self.normalise(pixels)), inplace=True)
        x = self.layer2(self.layer1(x))
        features: Tensor = self.layer4(self.layer3(x)).mean(dim=(2, 3))
        return features


def _stage(blocks: int, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        ResidualBlock(inputs, outputs, stride), *(ResidualBlock(outputs, outputs, 1) for _ in range(blocks - 1))
    )
