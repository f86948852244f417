"""Starting one process per device with the same command, by torch's own launcher, and watching over them."""

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.safe_python import PYTHON_FLAGS
from macs.core.settings import Span

log = logging.getLogger(__name__)

RUN_ID = "macs"  # of processes that were started here and not by torchrun
PER_CORE = 4  # most processes per core; even the second one makes nothing faster
GRACE = 5.0  # seconds for the first process to end, which ends all others
MANY = 1024  # more devices or machines are a typing error


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
    import torch

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
    """The last line that a process wrote to standard error."""
    files = sorted(logs.rglob(f"{local_rank}/stderr.log"))
    lines = files[-1].read_text(encoding="utf-8", errors="replace").strip().splitlines() if files else []
    return lines[-1] if lines else f"error: Process {local_rank + 1} failed without a message."
