"""The device that a network runs on, and the precision that it computes in."""

from typing import Any, cast

import torch
from torch import nn

from macs.core.registry import unknown

AUTO = "auto"  # the accelerator where there is one, else the CPU
_chosen: list[torch.device] = []  # by use_device; none or one


def use_device(device: str | torch.device = AUTO) -> torch.device:
    """Train on this device from now on, and load networks onto it: cpu, cuda, cuda:1, mps, or auto for the best one.

    A network that is already somewhere is used there: move it, or a detector, with `.to(device)`.
    """
    names = _device_names()
    if (name := str(device)) not in (AUTO, *names):
        raise unknown("device on this machine", name, [AUTO, *names])
    _chosen[:] = [] if name == AUTO else [torch.device(name)]
    return best_device()


def best_device() -> torch.device:
    """The device that `use_device` chose, else CUDA or an Apple GPU where there is one, else the CPU."""
    return _chosen[0] if _chosen else _accelerator() or torch.device("cpu")


def _device_names() -> list[str]:
    """The names of all devices of this machine."""
    accelerator = _accelerator()
    if accelerator is None:
        return ["cpu"]
    kind = accelerator.type
    return ["cpu", kind, *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]


def _accelerator() -> torch.device | None:
    return torch.accelerator.current_accelerator(check_available=True)


def device_of(net: nn.Module) -> torch.device:
    """The device that holds a network's weights."""
    return next((parameter.device for parameter in net.parameters()), torch.device("cpu"))


def channels_last(net: nn.Module) -> nn.Module:
    """Lay out the weights, in place, in channels-last order, which is the order of every batch here."""
    cast(Any, net).to(memory_format=torch.channels_last)  # torch's stub does not declare memory_format
    return net


def use_bf16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bf16: as asked, and for `auto` where the hardware has instructions for it.

    The kind of hardware decides, never a timing: the same machine must give the same bits every time. A CPU without
    such instructions emulates bf16 several times slower than float32.
    """
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return False
