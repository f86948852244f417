"""One training in several processes, one per device: how they meet, start from the same state, and share batch norm.

`macs finetune --devices K` and torchrun start the processes; Fabric connects them, by gloo on CPUs and by NCCL on GPUs.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from macs.core.devices import best_device, explained, use_bf16
from macs.core.errors import MacsError
from macs.core.processes import ALONE, Processes
from macs.data import ImageSet
from macs.methods import Method
from macs.training.journal import Journal
from macs.training.launching import RUN_ID
from macs.training.recipe import Recipe

log = logging.getLogger(__name__)

# The others wait while the first process validates. If one dies, they notice at once, without this limit.
PATIENCE = timedelta(hours=12)
Norm = nn.modules.batchnorm._BatchNorm


class Averaging(DDPStrategy):
    """Fabric's DDP without its wrapper: the loop averages gradients itself.

    The wrapper only knows gradients of its own `forward`, once per step; a method may call any part of a network, any
    number of times.
    """

    # Fabric declares that DDP's wrapper is returned.
    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        return module


def connect(recipe: Recipe, train: ImageSet, outliers: ImageSet | None) -> tuple[Fabric, Processes]:
    """Fabric on the best device of this process, connected with the others of this training, if there are any."""
    device = best_device()
    bf16 = use_bf16(recipe.precision, device)
    # As an object: by its name, Lightning would print a line about it.
    precision: Any = MixedPrecision("bf16-mixed", device.type) if bf16 else None
    count, here = world()
    if log.isEnabledFor(logging.INFO):
        which = f"training in {count} processes, this one" if count > 1 else "training"
        log.info("%s %s", which, explained(device, recipe.precision))
    if count == 1:
        own: Any = 1 if device.index is None else [device.index]
        return Fabric(accelerator=device.type, devices=own, plugins=precision), ALONE
    if device.index is not None:
        raise MacsError(f"Each process has a device of its own; leave out --device {device}, or train on it alone.")
    if device.type != "cpu" and here > torch.accelerator.device_count():
        available = torch.accelerator.device_count()
        raise MacsError(f"There are {here} processes on this machine and {available} devices; start one per device.")
    fewest = min(recipe.batch_in, len(train), recipe.batch_out if outliers is not None else count)
    if fewest < count:
        raise MacsError(f"A batch of {fewest} cannot be shared out to {count} processes; train with fewer devices.")
    fabric = Fabric(
        accelerator=device.type,
        strategy=Averaging(timeout=PATIENCE),
        devices=here,
        num_nodes=count // here,
        plugins=precision,
    )
    for talkative in ("lightning_fabric.utilities.distributed", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(talkative).setLevel(logging.WARNING)
    fabric.launch()
    return fabric, Processes(fabric.global_rank, fabric.world_size)


def world() -> tuple[int, int]:
    """How many processes train together, on all machines and on this one, according to torchrun's variables."""
    try:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        raise MacsError("WORLD_SIZE and LOCAL_WORLD_SIZE must be whole numbers, as torchrun sets them.") from None
    return (count, here) if "TORCHELASTIC_RUN_ID" in os.environ else (1, 1)


def share_start(
    processes: Processes,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    journal: Journal,
    resume: Callable[[], Method | None],
) -> Method | None:
    """Let the first process restore what its run folder holds, give it to the others, and return the restored method.

    Without anything to restore, every process begins with the weights of the first.
    """
    resumed, journal.history, journal.aside = processes.by_first(lambda: (resume(), journal.history, journal.aside))
    if processes.count == 1:
        return resumed
    for tensor in net.state_dict().values():
        dist.broadcast(tensor, 0)
    state = processes.by_first(optimizer.state_dict)
    if resumed is not None and not processes.first:
        optimizer.load_state_dict(state)
    return resumed


@contextmanager
def together(net: nn.Module, processes: Processes, sync_bn: bool) -> Iterator[None]:
    """Train a network in several processes, with or without synchronised batch norm."""
    with all_present(processes), shared_norms(net, processes, sync_bn):
        yield


@contextmanager
def all_present(processes: Processes) -> Iterator[None]:
    """Report that another process has ended, in place of gloo's or NCCL's message about a lost connection."""
    try:
        yield
    except RuntimeError as error:
        lost = any(word in str(error) for word in ("gloo", "NCCL", "Connection"))
        if processes.count == 1 or not lost:
            raise
        if os.environ.get("TORCHELASTIC_RUN_ID") == RUN_ID:  # our own launcher reports it
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # with which it ends the remaining processes
            raise SystemExit(1) from None
        raise MacsError(
            "Another process of this training has ended; see what it said, and continue after the last finished epoch "
            "with --resume."
        ) from None


@contextmanager
def shared_norms(net: nn.Module, processes: Processes, synchronised: bool) -> Iterator[None]:
    """If asked for, let batch norm compute its statistics over the rows of all processes instead of its own."""
    norms = [module for module in net.modules() if isinstance(module, Norm)] if synchronised else []
    for norm in norms if processes.count > 1 else []:  # mypy sees no instance with a forward of its own; it ends below
        norm.forward = partial(_norm_together, norm, processes)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            norm.__dict__.pop("forward", None)


def average_norms(net: nn.Module, processes: Processes) -> None:
    """After an epoch, average batch norm's running statistics, which each process estimated from its own rows."""
    norms = [module for module in net.modules() if isinstance(module, Norm) and module.running_mean is not None]
    statistics = (statistic for norm in norms for statistic in (norm.running_mean, norm.running_var))
    processes.average(statistic for statistic in statistics if statistic is not None)


def _norm_together(norm: Norm, processes: Processes, inputs: Tensor) -> Tensor:
    """Batch norm by the mean and the variance over the inputs of all processes, however many rows each has."""
    if not norm.training:
        return type(norm).forward(norm, inputs)
    dims = [0, *range(2, inputs.ndim)]
    wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
    count = processes.total(wide.new_tensor(wide.numel() / wide.shape[1]))
    mean = processes.total(wide.sum(dims)) / count
    centred = wide - mean.view(1, -1, *[1] * (inputs.ndim - 2))
    variance = processes.total(centred.square().sum(dims)) / count
    if norm.running_mean is not None and norm.running_var is not None:
        if norm.num_batches_tracked is not None:
            norm.num_batches_tracked.add_(1)
        momentum = norm.momentum if norm.momentum is not None else 1 / float(norm.num_batches_tracked or 1)
        norm.running_mean.lerp_(mean.detach(), momentum)
        norm.running_var.lerp_(variance.detach() * count / (count - 1), momentum)
    shape = (1, -1, *[1] * (inputs.ndim - 2))
    normal = centred * torch.rsqrt(variance + norm.eps).view(shape)
    if norm.weight is not None:
        normal = normal * norm.weight.view(shape) + norm.bias.view(shape)
    return normal.to(inputs.dtype)
