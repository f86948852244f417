"""What weights are known by: a hash of them, and where they came from."""

import hashlib
from typing import NamedTuple

import torch
from torch import nn

from macs.data.spec import MEMORY


class Origin(NamedTuple):
    """Where weights came from, which is MEMORY if nobody knows; their hash; and the seed that decided random ones."""

    source: str
    weights: str
    seed: int | None = None


def weights_hash(net: nn.Module) -> str:
    """Twelve hexadecimal digits that differ where a weight or its name does."""
    digest, state = hashlib.sha256(), sorted(net.state_dict().items())
    digest.update(repr([name for name, _ in state]).encode())
    for _, value in state:
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def remember_origin(net: nn.Module, source: str, seed: int | None = None) -> None:
    """Let a network, and every copy of it, know where the weights that it has now came from."""
    object.__setattr__(net, "macs_origin", Origin(source, weights_hash(net), seed))


def origin_of(net: nn.Module) -> Origin:
    """Where a network's weights came from, if they are still those; else they are known by their hash alone."""
    weights, told = weights_hash(net), getattr(net, "macs_origin", None)
    return told if isinstance(told, Origin) and told.weights == weights else Origin(MEMORY, weights)
