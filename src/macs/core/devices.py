"""The device that a network runs on, and the precision that it computes in."""

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import torch
from torch import nn

from macs.core.errors import MacsError
from macs.core.interpreter import python
from macs.core.registry import unknown

AUTO = "auto"  # the accelerator where there is one, else the CPU
ISA_LIMIT = "ONEDNN_MAX_CPU_ISA"  # limits the processor instructions that oneDNN, torch's library, may use
_chosen: list[torch.device] = []  # set by use_device; at most one


def use_device(device: str | torch.device = AUTO) -> torch.device:
    """Train on this device from now on, and load networks onto it: cpu, cuda, cuda:1, mps, or auto for the best one.

    Existing networks stay on their devices: move one, or a detector, with `.to(device)`.
    """
    names = _device_names()
    if (name := str(device)) not in (AUTO, *names):
        raise unknown("device on this machine", name, [AUTO, *names])
    _chosen[:] = [] if name == AUTO else [torch.device(name)]
    return best_device()


def best_device() -> torch.device:
    """Return the device that `use_device` chose, else CUDA or an Apple GPU where there is one, else the CPU."""
    return _chosen[0] if _chosen else _accelerator() or torch.device("cpu")


def _device_names() -> list[str]:
    """Return the names of all devices of this machine."""
    accelerator = _accelerator()
    if accelerator is None:
        return ["cpu"]
    kind = accelerator.type
    return ["cpu", kind, *(f"{kind}:{index}" for index in range(torch.accelerator.device_count()))]


def _accelerator() -> torch.device | None:
    return torch.accelerator.current_accelerator(check_available=True)


def device_of(net: nn.Module) -> torch.device:
    """Return the device that holds a network's weights."""
    return next((parameter.device for parameter in net.parameters()), torch.device("cpu"))


def arithmetic_of(device: torch.device) -> str:
    """Return all that may change the last bits of a result: torch, the device, its threads and its instructions."""
    if device.type == "cuda":
        return repr((torch.__version__, "cuda", torch.cuda.get_device_name(device), torch.version.cuda))
    capability, limit = torch.backends.cpu.get_cpu_capability(), os.environ.get(ISA_LIMIT, "")
    return repr((torch.__version__, device.type, capability, limit, torch.get_num_threads()))


def channels_last(net: nn.Module) -> nn.Module:
    """Lay out the weights, in place, in channels-last order, which is the order of every batch here."""
    cast(Any, net).to(memory_format=torch.channels_last)  # torch's stub does not declare memory_format
    return net


@dataclass(frozen=True)
class Bf16:
    """Whether a device computes in bf16, whether that is faster than float32, and how we know."""

    works: bool
    faster: bool
    reason: str


def bf16_on(device: torch.device) -> Bf16:
    """Return what bf16 is worth on a device.

    The kind of hardware decides, never a timing: the same machine must give the same bits every time. Among CPUs, those
    with AMX are faster in bf16; those with AVX512_BF16 alone, and those that emulate it, are slower.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return Bf16(True, native, "this GPU has bf16" if native else "this GPU would emulate bf16")
    if device.type != "cpu":
        return Bf16(True, False, "bf16 is not known to be faster on this device")
    limit = os.environ.get(ISA_LIMIT, "ALL").upper()
    if not torch.cpu._is_amx_tile_supported():
        return Bf16(True, False, "this processor has no AMX, without which bf16 is slower")
    if not ("AMX" in limit or limit in ("ALL", "DEFAULT", "")):
        return Bf16(True, False, f"{ISA_LIMIT}={limit} turns off AMX, without which bf16 is slower")
    if not _multiplies_bf16():
        return Bf16(False, False, "this processor says that it has AMX, but bf16 fails on it")
    return Bf16(True, True, "this processor has AMX")


def use_bf16(precision: str, device: torch.device) -> bool:
    """Return whether to compute in bf16: as asked, and for `auto` where the hardware multiplies it faster."""
    if precision == "float32":
        return False
    bf16 = bf16_on(device)
    if precision == "bf16" and not bf16.works:
        raise MacsError(
            "This processor says that it has AMX, but bf16 fails on it, perhaps because a virtual machine hides a part "
            f"of AMX; use --precision float32, or set {ISA_LIMIT}=AVX512_CORE_BF16 to do without AMX."
        )
    return precision == "bf16" or bf16.faster


def explained(device: torch.device, precision: str) -> str:
    """Return where and how a network computes, and why; for the log."""
    if _chosen and device == _chosen[0]:
        why = "as asked"
    elif (accelerator := _accelerator()) is None:
        why = "torch finds no GPU"
    else:
        why = "found by torch" if device.type == accelerator.type else "where the network is"
    count, limit = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    threads = f"{count} thread{'s' if count > 1 else ''}" + (f" (OMP_NUM_THREADS={limit})" if limit else "")
    number = "bf16" if use_bf16(precision, device) else "float32"
    how = bf16_on(device).reason if precision == AUTO else "as asked"
    return f"on {device} ({why}), {threads}, in {number} ({how})"


@cache
def _multiplies_bf16() -> bool:
    """Try a product in bf16, in another process, since an illegal instruction would end this one.

    It has all the time that it needs: on a busy machine, a time limit would turn into other bits.
    """
    product = "import torch; ones = torch.ones(64, 64, dtype=torch.bfloat16); ones @ ones"
    try:
        attempt = subprocess.run(python("-c", product), capture_output=True, check=False)
    except OSError:
        return False
    return attempt.returncode == 0
