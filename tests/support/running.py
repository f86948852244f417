"""`macs serve` in a process of its own, as a user starts it, and pictures to send to it."""

import asyncio
import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

START = "import sys; sys.modules['torch'] = None; from macs.__main__ import main; main()"  # an import of torch fails


class Running:
    """A service that has started; its log is read as it is written."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.lines: list[str] = []
        self._found: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.url = str(self.event("started")["addresses"][0])

    def _read(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("{"):
                self._found.put(json.loads(line))
        self._found.put(None)

    def event(self, name: str, seconds: float = 300) -> dict[str, Any]:
        """The next event of this name in the log."""
        while (entry := self._found.get(timeout=seconds)) is not None:
            if entry["event"] == name:
                return entry
        raise AssertionError(f"the service ended without {name!r}: {''.join(self.lines)}")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def signal(self, name: signal.Signals) -> None:
        self.process.send_signal(name)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.process.wait(30)


@contextmanager
def serving(detector: Path, *options: object, blocked: bool = True, **environment: str) -> Iterator[Running]:
    """A service at any free port, ended with the block; `blocked`: torch cannot be imported in it."""
    start = ["-c", START] if blocked else ["-m", "macs"]
    at_once = [] if "--drain" in options else ["--drain", "0"]  # it stops as soon as it is told to
    command = [sys.executable, *start, "serve", str(detector), "--port", "0", *map(str, options), *at_once]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, encoding="utf-8", env={**os.environ, **environment}
    )
    try:
        yield Running(process)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()


def png(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def form(contents: dict[str, bytes]) -> list[tuple[str, tuple[str, bytes, str]]]:
    """Files for httpx; the type says nothing, and must not matter."""
    return [("images", (name, content, "text/plain")) for name, content in contents.items()]


def verdicts(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return list(answer.json()["images"])


IMAGE = {"content-type": "image/png"}


async def load(
    url: str, content: bytes, clients: int, until: "asyncio.Event | None" = None, each: int = 10**9
) -> Counter[object]:
    """So many clients at once, each with one request after the other; counts status codes and kinds of errors."""
    count: Counter[object] = Counter()
    limits = httpx.Limits(max_connections=None)

    async def work(client: httpx.AsyncClient) -> None:
        for _ in range(each):
            if until is not None and until.is_set():
                return
            try:
                answer = await client.post(f"{url}/v1/predict", content=content, headers=IMAGE)
            except httpx.HTTPError as error:
                count[type(error).__name__] += 1
                return
            count[answer.status_code] += 1
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) >= 1

    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        await asyncio.gather(*(work(client) for _ in range(clients)))
    return count
