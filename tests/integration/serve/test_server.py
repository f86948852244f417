"""Signals and load: what was accepted is answered, and what is too much is refused."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from command import refused
from macs.core.errors import MacsError
from macs.serve.app import create_app
from macs.serve.server import address_of, bind, serve
from macs.serve.settings import DEFAULT
from running import Running, form, load, serving


def test_overload_gives_only_answers_and_429(exported: Path, pictures: dict[str, bytes]) -> None:
    with serving(exported, "--threads", 1, "--queue", 2, "--max-images", 2) as service:
        count = asyncio.run(load(service.url, pictures["12.png"], clients=40, each=10))
        assert count.keys() == {200, 429} and count.total() == 400
        with httpx.Client(base_url=service.url, timeout=60) as client:
            assert client.post("/v1/predict", files=form(dict(list(pictures.items())[:2]))).status_code == 200
            told = client.get("/metrics").text
        counted = re.findall(r'macs_requests_total{.*status="429"} (.*)', told)  # before a route is found, or by it
        assert sum(map(float, counted)) == count[429]
        assert service.event("overloaded")["refused"] >= 1


def test_sigterm_under_load_answers_all_that_was_accepted(exported: Path, pictures: dict[str, bytes]) -> None:
    async def stopped(service: Running) -> Counter[object]:
        loading = asyncio.create_task(load(service.url, pictures["12.png"], clients=16))
        await asyncio.sleep(1)
        service.signal(signal.SIGTERM)
        return await loading

    with serving(exported, "--threads", 1) as service:
        count = asyncio.run(stopped(service))
        ended = service.event("stopped")
        assert service.process.wait(30) == 0
    assert ended["accepted"] == ended["answered"] == count[200] > 16
    # Beyond that, only connections that were refused, or reset before the service saw them: no answer was broken off.
    assert count.keys() <= {200, "ConnectError", "ReadError"}


def test_readiness_ends_before_the_service_does(exported: Path) -> None:
    with serving(exported, "--threads", 1, "--drain", 30) as service:
        service.signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while (answer := httpx.get(f"{service.url}/readyz", timeout=60)).status_code == 200:
            assert time.monotonic() < deadline
        assert answer.status_code == 503 and answer.headers["connection"] == "close"
        assert httpx.get(f"{service.url}/healthz", timeout=60).status_code == 200
        service.signal(signal.SIGINT)  # the second signal ends it at once
        assert service.process.wait(30) == 0


def test_the_address_is_printed_when_it_answers(exported: Path) -> None:
    """A script may wait for the line and then connect, without trying again."""
    command = [sys.executable, "-m", "macs", "serve", str(exported), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        address = re.fullmatch(r".*d\.onnx answers at (http://127\.0\.0\.1:\d+); Ctrl-C stops it\.\n", line)
        assert httpx.get(f"{address[1]}/readyz", timeout=60).status_code == 200
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=60)[1]
        assert process.returncode == 0 and "Ctrl-C" not in rest
    finally:
        process.kill()
        process.wait()


def test_of_two_services_that_start_at_once_one_gets_the_port(exported: Path) -> None:
    """Both may be bound to it before the first one listens."""
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        second = bind("127.0.0.1", port)
        first.listen()
        with pytest.raises(MacsError, match=f"Port {port} of 127.0.0.1 is taken; name another"):
            serve(create_app(exported), second, DEFAULT)


def test_addresses_that_cannot_be_had(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} of 127.0.0.1 is taken" in refused(capsys, "serve", exported, "--port", port)
    with pytest.raises(MacsError, match="There is no address 'no such host'"):
        bind("no such host", 0)
    with pytest.raises(MacsError, match="192.0.2.1 is not an address of this machine"):
        bind("192.0.2.1", 0)
    with bind("::1", 0) as six:
        assert address_of(six).startswith("http://[::1]:")
