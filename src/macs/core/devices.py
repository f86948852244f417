"""The device that a network runs on, and the precision that it computes in."""

from typing import Any, cast

import torch
from torch import nn


def best_device() -> torch.device:
    """CUDA or an Apple GPU where there is one, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


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
