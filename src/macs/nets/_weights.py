"""The identity of weights and networks: their hashes, and where they came from."""

import hashlib
import importlib.metadata
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from macs.data.spec import MEMORY

LIBRARIES = ("torch", "timm", "torchvision", "transformers")  # code that is known by its version
OWN = "macs"  # code that is known by the files of this folder
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_OF_EVERY_MODULE = {*vars(nn.Module()), "macs_origin"}  # attributes that torch keeps, and where weights came from


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


def identity(net: nn.Module) -> str | None:
    """Return a hash of all that a network's outputs depend on: weights, buffers, structure, settings and code.

    None where the code is not known: classes from elsewhere, hooks, and a `forward` that was replaced.
    """
    digest = hashlib.sha256(_code().encode())

    def add(tensor: torch.Tensor) -> None:
        digest.update(repr((tensor.dtype, tensor.shape)).encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)

    for name, module in net.named_modules():
        kind, own = type(module), vars(module)
        known = kind.__module__.partition(".")[0] in (*LIBRARIES, OWN)
        if not known or "forward" in own or module._forward_hooks or module._forward_pre_hooks:
            return None
        digest.update(repr((name, kind.__module__, kind.__qualname__)).encode())
        for key in sorted(own.keys() - _OF_EVERY_MODULE):
            digest.update(key.encode())
            if isinstance(own[key], torch.Tensor):
                add(own[key])
            else:
                digest.update(_ADDRESS.sub("", repr(own[key])).encode())
    for name, tensor in (*net.named_parameters(), *net.named_buffers()):  # also buffers that are not in the state dict
        digest.update(name.encode())
        add(tensor)
    return digest.hexdigest()


@cache
def _code() -> str:
    """Return the libraries' versions, and a hash of our own networks and of what turns pixels into their input."""
    versions = []
    for name in LIBRARIES:
        try:
            versions.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            versions.append((name, ""))
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parent / "inference.py", here.parent / "data" / "batches.py"]
    return repr((versions, [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]))


def remember_origin(net: nn.Module, source: str, seed: int | None = None) -> None:
    """Record on a network, and thereby on its copies, where its present weights came from."""
    object.__setattr__(net, "macs_origin", Origin(source, weights_hash(net), seed))


def origin_of(net: nn.Module) -> Origin:
    """Return the recorded origin of a network's weights if they have not changed since, else their hash alone."""
    weights, recorded = weights_hash(net), getattr(net, "macs_origin", None)
    return recorded if isinstance(recorded, Origin) and recorded.weights == weights else Origin(MEMORY, weights)
