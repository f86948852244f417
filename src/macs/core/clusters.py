"""Ray clusters: the connection to an existing or a new one, and the loop that runs many tasks there."""

import logging
import os
import socket
from collections.abc import Callable, Collection, Generator, Iterable
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeVar

from macs.core import __version__
from macs.core.errors import MacsError, first_line
from macs.core.interpreter import driver_folders_last

log = logging.getLogger(__name__)

T = TypeVar("T")
TRIES = 5  # attempts at a task whose worker or machine is lost


def connected(address: str | None, local: dict[str, Any] | None = None) -> Any:
    """Ray, connected to the cluster at an address, else at $RAY_ADDRESS, else to a new one on this machine.

    `local` holds ray.init's settings for a new cluster. An existing connection is kept.
    """
    if find_spec("ray") is None:
        raise MacsError("The engine ray needs Ray: pip install 'macs-ood[ray]'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # otherwise Ray warns of a later version's change
    # Ray prints news of its workers to standard output, where only results belong. It leaves out lines that match this
    # pattern, which it reads on import.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
    import ray

    if ray.is_initialized():
        return ray
    settings: dict[str, Any]
    existing = address or os.environ.get("RAY_ADDRESS")
    settings = {"address": existing} if existing else {"address": "local", "include_dashboard": False, **(local or {})}
    hook = f"{driver_folders_last.__module__}.{driver_folders_last.__name__}"
    settings["runtime_env"] = {"worker_process_setup_hook": hook, **settings.get("runtime_env", {})}
    try:
        if existing:
            _knock(existing)
        ray.init(**settings, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises plain Exceptions, too
        why = first_line(error)
        if existing:
            raise MacsError(
                f"There is no Ray cluster at {existing} ({why}); check the address, or leave it out."
            ) from None
        raise MacsError(
            f"Ray could not start on this machine ({why}); name a running cluster with --address."
        ) from None
    log.info("connected to Ray %s at %s", ray.__version__, existing or "this machine")
    return ray


def _knock(address: str) -> None:
    """Raise an OSError if nobody listens at HOST:PORT: Ray itself would try for minutes, and print every attempt."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def slots(ray: Any, cpus: float, gpus: float = 0.0) -> int:
    """Return how many tasks with these needs the cluster can run at a time; raise if it can run none."""
    resources = ray.cluster_resources()
    room = int(resources.get("CPU", 0) // cpus)
    if gpus:
        room = min(room, int(resources.get("GPU", 0) / gpus))
    if room < 1:
        wanted = f"{cpus:g} CPUs and {gpus:g} GPUs" if gpus else f"{cpus:g} CPUs"
        raise MacsError(
            f"The Ray cluster has {resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs, but a task "
            f"needs {wanted}; ask for less with --threads and --gpus."
        )
    return room


def ended_tasks(
    ray: Any,
    items: Iterable[T],
    start: Callable[[T], Any],
    room: int,
    look: Callable[[Collection[T]], object] = lambda running: None,
    every: float | None = None,
) -> Generator[tuple[T, Any], None, None]:
    """Start one task per item, at most `room` at a time, and yield each item with its task when that has ended.

    `look` is called with the items of running tasks whenever one ends, and every so many seconds. When the iteration
    ends early, such as by Ctrl-C, the tasks that still run are cancelled; what they have written stays.
    """
    waiting = iter(items)
    running: dict[Any, T] = {}
    try:
        while True:
            for item in islice(waiting, room - len(running)):
                running[start(item)] = item
            if not running:
                return
            ended, _ = ray.wait([*running], timeout=every)
            look(running.values())
            for task in ended:
                yield running.pop(task), task
    finally:
        for task in running:
            ray.cancel(task, force=True)


def same_version(driver: str) -> None:
    """Raise in a worker whose version of macs is not the driver's."""
    if driver != __version__:
        raise MacsError(f"A worker has macs {__version__} and the driver {driver}; install the same version.")
