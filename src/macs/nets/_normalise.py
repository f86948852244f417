"""The first layer of our networks: (pixels - mean) / std by channel.

Weights mean nothing without mean and std: a network that is fed pixels normalised in another way answers, but answers
wrongly. So they are part of a network's preparation, travel in every file that holds one, and are known by name for
the public files.
"""

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.preparation import DEFAULT, NORMALISATIONS, Normalisation

USUAL = "oe"


def normalisation(given: Normalisation | str) -> Normalisation:
    """A normalisation as such, or by its public name."""
    if isinstance(given, str):
        if given not in NORMALISATIONS:
            raise unknown("normalisation", given, list(NORMALISATIONS))
        return NORMALISATIONS[given]
    return DEFAULT.normalised(given).normalisation


class Normalise(nn.Module):
    """(pixels - mean) / std by channel, as the first layer: nobody has to normalise, and nobody can forget to."""

    mean: Tensor
    std: Tensor

    def __init__(self, values: Normalisation | str = USUAL) -> None:
        super().__init__()
        values = normalisation(values)
        # Not persistent, so that the state dict has the names of the public checkpoints and no others.
        self.register_buffer("mean", torch.tensor(values.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(values.std).view(3, 1, 1), persistent=False)

    @property
    def values(self) -> Normalisation:
        """What the layer really does, even if its buffers were changed by hand, in the fewest digits that say it."""
        mean, std = (buffer.detach().float().cpu().flatten().expand(3).numpy() for buffer in (self.mean, self.std))
        (r, g, b), (dr, dg, db) = ([float(str(value)) for value in part] for part in (mean, std))
        return Normalisation((r, g, b), (dr, dg, db))

    def forward(self, pixels: Tensor) -> Tensor:
        if not pixels.is_floating_point():  # bytes would pass through the arithmetic and give nonsense
            raise MacsError(f"A network takes float pixels in [0, 1], not {pixels.dtype}: divide the bytes by 255.")
        return (pixels - self.mean) / self.std
