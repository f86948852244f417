"""A cluster that is not there, has no room, or cannot be had because Ray is not installed."""

import importlib.util
import re
import socket
import time
from types import SimpleNamespace

import pytest

from macs.core import clusters
from macs.core.clusters import connected, slots
from macs.core.errors import MacsError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def test_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda name: None)
    with pytest.raises(MacsError, match=r"pip install 'macs-ood\[ray\]'"):
        connected(None)


@needs_ray
@pytest.mark.parametrize(
    "address", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}", "no.such.host.invalid:{}", "h:99999"]
)
def test_nobody_listens_at_an_address(address: str) -> None:
    with socket.socket() as free:  # bound, but it does not listen
        free.bind(("127.0.0.1", 0))
        address = address.format(free.getsockname()[1])
        start = time.monotonic()
        with pytest.raises(MacsError, match=re.escape(f"There is no Ray cluster at {address} (")):
            connected(address)
    assert time.monotonic() - start < 60


@needs_ray
def test_a_cluster_that_cannot_start() -> None:
    with pytest.raises(MacsError, match="Ray could not start on this machine .*; name a running cluster"):
        connected(None, {"num_cpus": -1})


@pytest.mark.cluster
@needs_ray
def test_a_cluster_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    with pytest.raises(MacsError, match="There is no Ray cluster at auto"):
        connected("auto")


def test_room_for_tasks() -> None:
    ray = SimpleNamespace(cluster_resources=lambda: {"CPU": 8.0, "GPU": 2.0})
    assert slots(ray, 1) == 8 and slots(ray, 3) == 2
    assert slots(ray, 1, gpus=0.5) == 4 and slots(ray, 4, gpus=0.5) == 2
    with pytest.raises(MacsError, match="has 8 CPUs and 2 GPUs, but a task needs 9 CPUs; ask for less"):
        slots(ray, 9)
    with pytest.raises(MacsError, match="but a task needs 1 CPUs and 3 GPUs"):
        slots(ray, 1, gpus=3)
