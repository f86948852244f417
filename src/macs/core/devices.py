"""Where networks run and in which arithmetic."""

import ctypes
import sys
from typing import Any, cast

import torch
from torch import nn


def best_device() -> torch.device:
    """CUDA or an Apple GPU where there is one, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def device_of(net: nn.Module) -> torch.device:
    """Where a network's weights are."""
    return next((parameter.device for parameter in net.parameters()), torch.device("cpu"))


def channels_last(net: nn.Module) -> nn.Module:
    """Lay out the weights, in place, for images whose channels lie side by side, as every batch here has them."""
    return cast(Any, net).to(memory_format=torch.channels_last)  # torch's stub knows no memory format here


def keep_freed_memory() -> None:
    """Let the C library keep the memory that tensors free, for the next ones to use.

    By default it hands every large block back to the system, and the next one costs a page fault every 4 KiB: on a CPU
    that is more than half the time of an activation or a batch norm. Training frees and takes the same blocks at every
    step, so nothing is gained by giving them back. glibc only; elsewhere nothing happens.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
        libc.mallopt(trim_threshold, -1)
        libc.mallopt(mmap_max, 0)


def use_bf16(precision: str, device: torch.device) -> bool:
    """Whether to compute in bf16: as asked, and for `auto` where the hardware has instructions for it.

    Decided by what the hardware is, never by a stopwatch: the same machine must give the same bits every time. A CPU
    without such instructions emulates bf16 several times slower than float32.
    """
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return False
