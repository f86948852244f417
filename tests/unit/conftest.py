"""The rule of this tier: no training, no other process, no server. A test that breaks it fails where it does so."""

import multiprocessing.process
import os
import socket
import subprocess
from collections.abc import Callable

import pytest

from macs.training import loop

FORBIDDEN = (
    (loop, "_train", "trains a network"),
    (subprocess.Popen, "__init__", "starts a process"),
    (multiprocessing.process.BaseProcess, "start", "starts a process"),
    (os, "fork", "starts a process"),
    (socket.socket, "listen", "starts a server"),
)


@pytest.fixture(autouse=True)
def _unit_tests_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(what: str) -> Callable[..., None]:
        return lambda *_, **__: pytest.fail(f"this test {what}, so it belongs into tests/integration")

    for owner, name, what in FORBIDDEN:
        monkeypatch.setattr(owner, name, refusing(what))
