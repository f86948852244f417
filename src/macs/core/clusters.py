"""The connection to a Ray cluster: an existing one, or one that is started on this machine for this process."""

import logging
import os
import socket
from importlib.util import find_spec
from typing import Any

from macs.core.errors import MacsError, first_line

log = logging.getLogger(__name__)

TRIES = 5  # of a task whose worker or machine is lost


def connected(address: str | None, local: dict[str, Any] | None = None) -> Any:
    """Ray, connected to the cluster at an address, else at $RAY_ADDRESS, else to a new one on this machine.

    `local` are settings of a new one, for ray.init. A connection that there is already stays.
    """
    if find_spec("ray") is None:
        raise MacsError("The engine ray needs Ray: pip install 'macs-ood[ray]'.")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns about what a later version does
    # Ray prints what happens to workers to standard output, where only results belong. It leaves out lines that match
    # this pattern, which it reads when it is imported.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^")
    import ray

    if ray.is_initialized():
        return ray
    existing = address or os.environ.get("RAY_ADDRESS")
    new = {"address": "local", "include_dashboard": False, **(local or {})}
    try:
        if existing:
            _knock(existing)
        ray.init(**({"address": existing} if existing else new), logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:  # Ray raises plain ones, too
        why = first_line(error)
        if existing:
            raise MacsError(
                f"There is no Ray cluster at {existing} ({why}); check the address, or leave it out."
            ) from None
        raise MacsError(
            f"Ray could not start on this machine ({why}); name a cluster that runs with --address."
        ) from None
    log.info("connected to Ray %s at %s", ray.__version__, existing or "this machine")
    return ray


def _knock(address: str) -> None:
    """Raise an OSError if nobody listens at HOST:PORT: Ray itself would try for minutes, and print every attempt."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def slots(ray: Any, cpus: float, gpus: float = 0.0) -> int:
    """How many tasks with these needs the cluster has room for at a time; an error if for none."""
    there = ray.cluster_resources()
    room = int(there.get("CPU", 0) // cpus)
    if gpus:
        room = min(room, int(there.get("GPU", 0) / gpus))
    if room < 1:
        wanted = f"{cpus:g} CPUs and {gpus:g} GPUs" if gpus else f"{cpus:g} CPUs"
        raise MacsError(
            f"The Ray cluster has {there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs, but a task needs "
            f"{wanted}; ask for less with --threads and --gpus."
        )
    return room
