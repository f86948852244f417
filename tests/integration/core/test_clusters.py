"""A cluster that is not there, has no room, or cannot be had because Ray is not installed."""

import importlib.util
import re
import socket
import time

import pytest

from macs.core.clusters import connected
from macs.core.errors import MacsError

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


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
