"""The first layer of our networks, (pixels - mean) / std by channel, and the mean and std that public weights expect.

Weights mean nothing without them: a network that is fed pixels normalised in another way answers, but answers wrongly.
So they are part of a network, travel in every file that holds one, and are known by name for the public files.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.registry import unknown


@dataclass(frozen=True)
class Normalisation:
    """A mean and a standard deviation for red, green and blue pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            try:
                values = tuple(float(value) for value in getattr(self, name))
            except (TypeError, ValueError):
                values = ()
            if len(values) != 3 or not all(math.isfinite(value) and 0 <= value <= 1 for value in values):
                raise MacsError(
                    f"The {name} of a normalisation is three numbers from 0 to 1, for red, green and blue pixels in "
                    f"[0, 1], not {getattr(self, name)!r}; divide numbers that belong to 0..255 by 255."
                )
            object.__setattr__(self, name, values)
        if 0 in self.std:
            raise MacsError(f"The std of a normalisation must be above 0, not {self.std}: pixels are divided by it.")


PUBLIC = {
    # Hendrycks, Mazeika, Dietterich, and after them energy_ood, margin_ood and the other codes of this line.
    "oe": Normalisation((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "openood-cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "openood-cifar100": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "kuangliu": Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),  # of github.com/kuangliu
    "imagenet": Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": Normalisation((0, 0, 0), (1, 1, 1)),
}
DEFAULT = "oe"


def normalisation(given: Normalisation | str) -> Normalisation:
    """A normalisation as such, or by its public name."""
    if isinstance(given, Normalisation):
        return given
    if given not in PUBLIC:
        raise unknown("normalisation", given, list(PUBLIC))
    return PUBLIC[given]


class Normalise(nn.Module):
    """(pixels - mean) / std by channel, as the first layer: nobody has to normalise, and nobody can forget to."""

    mean: Tensor
    std: Tensor

    def __init__(self, values: Normalisation | str = DEFAULT) -> None:
        super().__init__()
        values = normalisation(values)
        # Not persistent, so that the state dict has the names of the public checkpoints and no others.
        self.register_buffer("mean", torch.tensor(values.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(values.std).view(3, 1, 1), persistent=False)

    @property
    def values(self) -> Normalisation:
        """What the layer really does, even if its buffers were changed by hand."""
        mean, std = (tuple(buffer.flatten().tolist()) for buffer in (self.mean, self.std))
        return Normalisation(*(v * 3 if len(v) == 1 else v for v in (mean, std)))  # one number is for all channels

    def forward(self, pixels: Tensor) -> Tensor:
        if not pixels.is_floating_point():  # bytes would pass through the arithmetic and give nonsense
            raise MacsError(f"A network takes float pixels in [0, 1], not {pixels.dtype}: divide the bytes by 255.")
        return (pixels - self.mean) / self.std
