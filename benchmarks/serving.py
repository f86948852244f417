"""`macs serve` under load on loopback: single-image requests, batched and unbatched, beside bare ONNX Runtime.

    python benchmarks/serving.py [--seconds 5] [--rounds 3] [--overload 30]
    python benchmarks/serving.py --rate 250 --overload 300      # five minutes of overload alone

The clients are connections of one asyncio process, each of which sends its next request when it has its answer. For the
overload, requests are sent at ten times the rate that was sustained, whether answers come or not, and the service's
memory is read every ten seconds.
"""

import argparse
import asyncio
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench import interleaved, machine, report, seconds
from macs import nets
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.runtime import session

CLIENTS, BATCH = 64, 32
OUTPUTS = ["index", "confidence", "p_value", "is_ood"]
random = np.random.default_rng(0)


@dataclass
class Load:
    """What became of the requests: status codes, and the latencies of those that were answered 200."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)

    def quantiles(self) -> str:
        ordered = sorted(self.latencies) or [0.0]
        p50, p99 = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
        return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {1000 * ordered[-1]:.1f} ms"


class Connection(asyncio.Protocol):
    """HTTP/1.1 with answers of a known length, as little of it as a load takes."""

    def __init__(self, load: Load, then: "Callable[[Connection], None]") -> None:
        self.load, self.then = load, then
        self.buffer = b""
        self.since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.then(self)

    def ask(self, request: bytes) -> None:
        self.since = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        status, self.buffer = int(head[9:12]), body[length:]
        self.load.statuses[status] += 1
        if status == 200:
            self.load.latencies.append(time.perf_counter() - self.since)
        self.then(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.since:
            self.load.statuses[0] += 1  # broken off; at the end of a load, by ourselves


def request_for(content: bytes) -> bytes:
    head = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n"
    head += f"Content-Length: {len(content)}\r\n\r\n"
    return head.encode() + content


async def closed_load(port: int, requests: list[bytes], clients: int, length: float) -> Load:
    """So many clients that wait for each answer."""
    load, until, turn = Load(), time.perf_counter() + length, iter(range(10**9))
    done: list[Connection] = []

    def then(connection: Connection) -> None:
        if time.perf_counter() < until:
            connection.ask(requests[next(turn) % len(requests)])
        else:
            connection.since = 0.0
            done.append(connection)

    loop = asyncio.get_running_loop()
    for _ in range(clients):
        await loop.create_connection(lambda: Connection(load, then), "127.0.0.1", port)
    while len(done) + load.statuses[0] < clients:
        await asyncio.sleep(0.01)
    for connection in done:
        connection.transport.close()
    return load


async def open_load(port: int, requests: list[bytes], rate: float, length: float, most: int = 512) -> Load:
    """Requests at a rate, on connections that are free; where none of `most` is, the client itself is the limit."""
    load, free, made = Load(), list[Connection](), 0

    def then(connection: Connection) -> None:
        connection.since = 0.0
        free.append(connection)

    loop, start, sent = asyncio.get_running_loop(), time.perf_counter(), 0
    while (now := time.perf_counter() - start) < length:
        while sent < now * rate:
            if not free and made < most:
                made += 1
                await loop.create_connection(lambda: Connection(load, then), "127.0.0.1", port)
            if not free:
                break
            free.pop().ask(requests[sent % len(requests)])
            sent += 1
        await asyncio.sleep(0.001)
    while len(free) + load.statuses[0] < made:
        await asyncio.sleep(0.01)
    for connection in free:
        connection.transport.close()
    return load


class Service:
    """`macs serve` in a process of its own."""

    def __init__(self, detector: Path, *options: str) -> None:
        command = [sys.executable, "-m", "macs", "serve", str(detector), "--port", "0", *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        while not (line := self.process.stderr.readline()).startswith("{"):
            assert line, "the service did not start"
        self.port = int(json.loads(line)["addresses"][0].rpartition(":")[2])
        # Its log is read by a process that throws it away, so that it never waits for us.
        self.sink = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(name)))

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def pictures(count: int) -> list[bytes]:
    contents = []
    for pixels in random.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        contents.append(file.getvalue())
    return contents


def detector_file(folder: Path) -> Path:
    """A WRN-40-2 for 32 x 32 images; random weights take as long as trained ones."""
    torch.manual_seed(0)
    pixels = random.integers(0, 256, (1000, 32, 32, 3), dtype=np.uint8)
    images = ImageSet.from_array(pixels, random.integers(0, 10, 1000), [str(i) for i in range(10)])
    path = folder / "d.onnx"
    Detector(nets.build("wrn-40-2", classes=10)).calibrate(images).export(path)
    return path


def throughput(detector: Path, requests: list[bytes], length: float, rounds: int) -> float:
    """Requests per second of the service as it is by default; prints it beside the others."""
    bare = session(detector.read_bytes())
    services = {
        "macs serve": Service(detector),
        "macs serve, delay of 5 ms": Service(detector, "--delay", "5"),
        "macs serve, unbatched": Service(detector, "--batch", "1"),
    }
    latencies: dict[str, Load] = {}
    passes_made: Counter[str] = Counter()

    def passes(batch: int) -> float:
        images = random.integers(0, 256, (batch, 32, 32, 3), dtype=np.uint8)
        count = 0
        until = time.perf_counter() + length
        spent = 0.0
        while time.perf_counter() < until:
            spent += seconds(lambda: bare.run(OUTPUTS, {"images": images}))
            count += batch
        return count / spent

    def served(name: str, clients: int) -> float:
        case, before = f"{name}, {clients} clients", services[name].metric("macs_batch_images_count")
        start = time.perf_counter()
        load = asyncio.run(closed_load(services[name].port, requests, clients, length))
        spent = time.perf_counter() - start
        assert set(load.statuses) == {200}, load.statuses
        passes_made[case] += round(services[name].metric("macs_batch_images_count") - before)
        latencies.setdefault(case, Load()).latencies += load.latencies
        return load.statuses[200] / spent

    cases: dict[str, Callable[[], float]] = {
        f"ONNX Runtime, batches of {BATCH}": lambda: passes(BATCH),
        "ONNX Runtime, one by one": lambda: passes(1),
        **{f"{name}, {CLIENTS} clients": partial(served, name, CLIENTS) for name in services},
        "macs serve, 1 client": lambda: served("macs serve", 1),
        "macs serve, delay of 5 ms, 1 client": lambda: served("macs serve, delay of 5 ms", 1),
    }
    found = interleaved(cases, rounds)
    for service in services.values():
        assert service.stop() == 0
    ours = found[f"macs serve, {CLIENTS} clients"]
    bare_batched, bare_single = found[f"ONNX Runtime, batches of {BATCH}"], found["ONNX Runtime, one by one"]

    def paired(other: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(ours.values, other, strict=True))

    ratios: dict[str, float | str] = {
        f"service / ONNX Runtime in batches of {BATCH}, round by round": paired(bare_batched.values),
        "service / ONNX Runtime one by one, round by round": paired(bare_single.values),
        "batched / unbatched": paired(found[f"macs serve, unbatched, {CLIENTS} clients"].values),
        **{
            f"{name}: {len(load.latencies) / passes_made[name]:.1f} images per pass": load.quantiles()
            for name, load in latencies.items()
        },
    }
    report("serving", "Single-image requests to a WRN-40-2 detector", found, "images/s", ratios)
    return ours.median


def overload(detector: Path, requests: list[bytes], rate: float, length: float) -> None:
    """Ten times what the service can do: status codes, latency of what was accepted, memory."""
    service = Service(detector)
    asyncio.run(closed_load(service.port, requests, CLIENTS, 2))
    memory, total, parts = [service.metric("process_resident_memory")], Load(), max(1, round(length / 10))
    for _ in range(parts):
        load = asyncio.run(open_load(service.port, requests, rate, length / parts))
        total.statuses += load.statuses
        total.latencies += load.latencies
        memory.append(service.metric("process_resident_memory"))
    exit_code = service.stop()
    print(f"{rate:.0f} requests/s offered for {length:.0f} s, {total.statuses.total() / length:.0f} sent and answered")
    print(f"  status codes: {dict(total.statuses)}; exit code {exit_code}")
    print(f"  latency of accepted requests: {total.quantiles()}")
    print(f"  resident memory, MB: {', '.join(f'{each / 1e6:.0f}' for each in memory)}")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--overload", type=float, default=30, help="seconds; 0 for none")
    options.add_argument("--rate", type=float, help="requests/s that can be sustained, if known: they are not measured")
    given = options.parse_args()
    print(machine(), "load average", os.getloadavg())
    with tempfile.TemporaryDirectory() as folder:
        detector = detector_file(Path(folder))
        requests = [request_for(content) for content in pictures(64)]
        rate = given.rate or throughput(detector, requests, given.seconds, given.rounds)
        if given.overload:
            overload(detector, requests, 10 * rate, given.overload)


if __name__ == "__main__":
    main()
