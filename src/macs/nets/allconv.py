"""AllConv: nine convolutions, two poolings, no residual connections; the second network of the outlier exposure papers.

Springenberg, Dosovitskiy, Brox, Riedmiller: Striving for Simplicity, ICLR 2015 workshop; with batch norm and GELU as in
Hendrycks, Mazeika, Dietterich: Deep Anomaly Detection with Outlier Exposure, ICLR 2019.
"""

from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from macs.core.errors import MacsError
from macs.nets import Net, net
from macs.nets._network import Dropout, conv_norm

SMALLEST = 12  # pixels, of which two poolings and an unpadded convolution leave one


class QuickGELU(nn.Module):
    """x * sigmoid(1.702 x), the approximation that the public weights were trained with."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


@net("allconv")
class AllConv(Net):
    examples: ClassVar = ("allconv",)
    public_names: ClassVar = {"features": "trunk", "classifier": "fc"}

    def __init__(self, *, classes: int, dropout: float = 0.5) -> None:
        super().__init__("allconv", classes)
        self.trunk = nn.Sequential(
            *(*_layer(3, 96), *_layer(96, 96), *_layer(96, 96), nn.MaxPool2d(2), Dropout(dropout)),
            *(*_layer(96, 192), *_layer(192, 192), *_layer(192, 192), nn.MaxPool2d(2), Dropout(dropout)),
            # Padding 1x1 convolutions is unusual (it frames the map with constants), but the public weights need it.
            *(*_layer(192, 192, padding=0), *_layer(192, 192, size=1), *_layer(192, 192, size=1)),
        )
        self.fc = nn.Linear(192, classes)
        self.initialise()

    def features(self, pixels: Tensor) -> Tensor:
        if min(pixels.shape[2:]) < SMALLEST:
            raise MacsError(f"allconv needs images of {SMALLEST} x {SMALLEST} pixels or more; enlarge them.")
        x = self.normalise(pixels)
        layers = iter(self.trunk)
        for layer in layers:
            x = conv_norm(layer, cast(nn.BatchNorm2d, next(layers)), x) if isinstance(layer, nn.Conv2d) else layer(x)
        # 32 x 32 pixels give a 10 x 10 map, of which the public network uses only the upper left 8 x 8.
        return avg_pool2d(x, min(8, *x.shape[2:])).mean(dim=(2, 3))


def _layer(inputs: int, outputs: int, size: int = 3, padding: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, size, padding=padding), nn.BatchNorm2d(outputs), QuickGELU()]
