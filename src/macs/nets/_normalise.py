"""The first layer of our networks: (pixels - mean) / std per channel.

Weights belong to a mean and std: with another normalisation, a network still gives an output, but a wrong one. So mean
and std are part of a network's preparation, are stored in every file that holds one, and have names for public files.
"""

import torch
from torch import Tensor, nn

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.preparation import DEFAULT, NORMALISATIONS, Normalisation

USUAL = "oe"


def normalisation(values: Normalisation | str) -> Normalisation:
    """Return a normalisation, given as its values or by its public name."""
    if isinstance(values, str):
        if values not in NORMALISATIONS:
            raise unknown("normalisation", values, list(NORMALISATIONS))
        return NORMALISATIONS[values]
    return DEFAULT.normalised(values).normalisation


class Normalise(nn.Module):
    """(pixels - mean) / std per channel, as the first layer, so that normalisation cannot be forgotten."""

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
