"""The identity of weights: their hash, and where they came from."""

import hashlib
from typing import NamedTuple

import torch
from torch import nn

from macs.data.spec import MEMORY


class Origin(NamedTuple):
    """Where weights came from (MEMORY if unknown), their hash, and the seed if they are random."""

    source: str
    weights: str
    seed: int | None = None


def weights_hash(net: nn.Module) -> str:
    """Twelve hexadecimal digits of a SHA-256 over the names and values of all weights."""
    digest, state = hashlib.sha256(), sorted(net.state_dict().items())
    digest.update(repr([name for name, _ in state]).encode())
    for _, value in state:
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def remember_origin(net: nn.Module, source: str, seed: int | None = None) -> None:
    """Record on a network, and thereby on its copies, where its present weights came from."""
    object.__setattr__(net, "macs_origin", Origin(source, weights_hash(net), seed))


def origin_of(net: nn.Module) -> Origin:
    """The recorded origin of a network's weights if they have not changed since, else their hash alone."""
    weights, recorded = weights_hash(net), getattr(net, "macs_origin", None)
    return recorded if isinstance(recorded, Origin) and recorded.weights == weights else Origin(MEMORY, weights)
