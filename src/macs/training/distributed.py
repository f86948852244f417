"""Distributed training: one process per device, how they are launched, meet, start alike and share batch norm.

`macs finetune --devices K` and torchrun start the processes; Fabric connects them, by gloo on CPUs and by NCCL on GPUs.
"""

import atexit
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins import MixedPrecision
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from macs.core.console import warn
from macs.core.devices import best_device, explained, use_bf16
from macs.core.errors import MacsError
from macs.core.interpreter import PYTHON_FLAGS
from macs.core.processes import ALONE, Processes
from macs.core.settings import Span
from macs.data import ImageSet
from macs.methods import Method
from macs.training.checkpointing import Checkpointer
from macs.training.recipe import Recipe

log = logging.getLogger(__name__)

# The others wait while the first process validates. If one dies, they notice at once, without this limit.
PATIENCE = timedelta(hours=12)
RUN_ID = "macs"  # of processes that were started here and not by torchrun
PER_CORE = 4  # most processes per core; even the second one makes nothing faster
GRACE = 5.0  # seconds for the first process to end, which ends all others
MANY = 1024  # more devices or machines are a typing error
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
    atexit.register(_disconnect)
    return fabric, Processes(fabric.global_rank, fabric.world_size)


def _disconnect() -> None:
    """End gloo's threads while the interpreter still runs: later, they abort the process (Fabric does so for NCCL)."""
    if dist.is_initialized():
        dist.destroy_process_group()


def world() -> tuple[int, int]:
    """Return how many processes train together, on all machines and on this one, according to torchrun's variables."""
    try:
        count = int(os.environ.get("WORLD_SIZE", "1"))
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    except ValueError:
        raise MacsError("WORLD_SIZE and LOCAL_WORLD_SIZE must be whole numbers, as torchrun sets them.") from None
    return (count, here) if "TORCHELASTIC_RUN_ID" in os.environ else (1, 1)


def share_start(processes: Processes, checkpointer: Checkpointer, method: Method) -> Method | None:
    """Let the first process restore what its run folder holds, give it to the others, and return the restored method.

    Without anything to restore, every process begins with the weights of the first.
    """
    resumed, checkpointer.history, checkpointer.aside = processes.by_first(
        lambda: (checkpointer.restored(method), checkpointer.history, checkpointer.aside)
    )
    if processes.count == 1:
        return resumed
    for tensor in checkpointer.net.state_dict().values():
        dist.broadcast(tensor, 0)
    state = processes.by_first(checkpointer.optimizer.state_dict)
    if resumed is not None and not processes.first:
        checkpointer.optimizer.load_state_dict(state)
    return resumed


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


def start(devices: int, nodes: int, rendezvous: str | None, command: Sequence[str], cpu: bool) -> int | None:
    """Run `macs` with the arguments `command` once per device, wait, and return the exit code.

    None means that there is nothing to start: for one device, and in a process that a launcher has started.
    """
    Span(1, MANY).hold("--devices", devices)
    Span(1, MANY).hold("--nodes", nodes)
    if started := os.environ.get("WORLD_SIZE") if "TORCHELASTIC_RUN_ID" in os.environ else None:
        if devices * nodes not in (1, int(started)):
            raise MacsError(
                f"torchrun has started {started} processes, not {devices * nodes}; leave --devices and --nodes out."
            )
        return None
    if devices * nodes == 1:
        return None
    _check_devices(devices, cpu)
    if nodes > 1 and (rendezvous is None or ":" not in rendezvous):
        raise MacsError(
            "Several machines need a place to meet: start the same command on each of them, with --rendezvous and the "
            "HOST:PORT of one of them."
        )
    return _launch(devices, nodes, rendezvous, command)


@contextmanager
def after_the_first() -> Iterator[None]:
    """Let the first process alone report an error that all of them have, such as a missing path."""
    try:
        yield
    except MacsError:
        if os.environ.get("TORCHELASTIC_RUN_ID") == RUN_ID and os.environ.get("RANK", "0") != "0":
            time.sleep(GRACE)
        raise


def _check_devices(devices: int, cpu: bool) -> None:
    accelerator = None if cpu else torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        cores = os.cpu_count() or 1
        if devices > PER_CORE * cores:
            raise MacsError(
                f"This machine has {cores} cores and no GPU; {devices} processes are too many, ask for at most "
                f"{PER_CORE * cores}."
            )
        if devices > cores:
            warn(f"{devices} processes share {cores} cores, which is slower than {cores} processes.")
    elif devices > (available := torch.accelerator.device_count()):
        raise MacsError(f"This machine has {available} {accelerator.type} devices, not {devices}; ask for fewer.")


def _launch(devices: int, nodes: int, rendezvous: str | None, command: Sequence[str]) -> int:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // devices)))
    log.info("starting %d processes with OMP_NUM_THREADS=%s", devices, os.environ["OMP_NUM_THREADS"])
    logging.disable(logging.ERROR)  # we report failures ourselves
    with tempfile.TemporaryDirectory() as logs:
        others = dict.fromkeys(range(1, devices), Std.ALL)  # the first process speaks for all
        config = LaunchConfig(
            min_nodes=nodes,
            max_nodes=nodes,
            nproc_per_node=devices,
            run_id=RUN_ID,
            rdzv_backend="c10d",
            rdzv_endpoint=rendezvous or "localhost:0",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(logs, redirects=others),
        )
        try:
            elastic_launch(config, sys.executable)(*PYTHON_FLAGS, "-m", "macs", *command)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode < 0:
                raise MacsError(
                    f"Process {rank + 1} of {devices * nodes} was ended by signal {-failure.exitcode}, and so were the "
                    "others; the same command with --resume continues after the last finished epoch."
                ) from None
            if failure.local_rank:
                print(_last_words(Path(logs), failure.local_rank), file=sys.stderr)
            return int(failure.exitcode)
        except SignalException as stopped:  # the processes got the same signal and have reported it
            return 128 + int(stopped.sigval)
    return 0


def _last_words(logs: Path, local_rank: int) -> str:
    """Return the last line that a process wrote to standard error."""
    files = sorted(logs.rglob(f"{local_rank}/stderr.log"))
    lines = files[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines() if files else []
    return lines[-1] if lines else f"error: Process {local_rank + 1} failed without a message."
