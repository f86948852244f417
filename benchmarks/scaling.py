"""A model of what a training step and a prediction job cost, its constants as measured here, and its predictions.

A step of K processes, on a machine with C cores or one device per process:

    data      d n                                      n = N / K rows of each process
    compute   (a + b n) max(1, K / C)                  on a CPU, processes beyond the cores share them
    messages  sum over messages of  m bytes / B + (K - 1) L,   where an all-reduce of s bytes moves m = 2 s (K - 1) / K

A prediction job of I images in chunks of i, by W workers: start + ceil(I / i / W) (o + c i) max(1, W / C).

a, b, d, c, o and the start are measured with one process (a, b and d in its processor time, which other programs
disturb least), B and L with two; what the model says of the rest stands beside measurements. Then it is asked about
machines that we do not have, with constants that are assumed and named.

python benchmarks/scaling.py             measures, about five minutes on two cores
"""

import heapq
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from rich.console import Console
from rich.table import Table

import macs
from bench import WRN_40_2, machine, seconds
from macs import methods, nets
from macs.core.processes import Processes
from macs.data import ImageSet
from macs.training.distributed import shared_norms
from macs.training.recipe import Recipe
from macs.training.training_batches import pixel_batches

CORES = os.cpu_count() or 1
ROWS = 64  # images and as many outliers of a whole batch
STEPS = 3
SMALL, LARGE = 1_000, 10_000_000  # bytes of messages by which latency and bandwidth are told apart
IMAGES, CHUNK = 1_000, 100
CLASSES = list("abcdefghij")
PARTS = ("data", "compute", "gradient", "logits", "batch norm")
random = np.random.default_rng(0)
console = Console(width=110, highlight=False)


# ---------------------------------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class Network:
    """What a network sends in a step."""

    weights: int
    classes: int
    norms: int = 0  # layers of batch norm, if they are synchronised
    channels: float = 0  # of such a layer, on average


@dataclass(frozen=True)
class Machine:
    """The constants of the model."""

    fixed: float  # a: seconds of a step, however few rows it has
    row: float  # b: seconds of computation per row
    data: float  # d: seconds to read, crop and convert a row
    bandwidth: float  # B: bytes per second that a process sends
    latency: float  # L: seconds of one exchange between two processes
    cores: float = math.inf  # C: that processes share; infinite where each has a device

    def message(self, size: float, processes: int) -> float:
        """Seconds of an all-reduce."""
        if processes == 1:
            return 0.0
        return 2 * size * (processes - 1) / processes / self.bandwidth + (processes - 1) * self.latency

    def step(self, rows: int, processes: int, network: Network) -> dict[str, float]:
        """Seconds of each part of a step with so many rows, images and outliers together."""
        own, shared = rows / processes, max(1.0, processes / self.cores)
        norms = self.message(4 * network.channels, processes) * 5 * network.norms
        return {
            "data": self.data * own * shared,
            "compute": (self.fixed + self.row * own) * shared,
            "gradient": self.message(4 * network.weights, processes),
            "logits": 2 * self.message(4 * network.classes * rows / 2, processes),
            **({"batch norm": norms} if network.norms else {}),
        }


def job(images: float, chunk: float, workers: int, start: float, overhead: float, image: float, cores: float) -> float:
    """Seconds of a prediction job."""
    rounds = math.ceil(images / chunk / workers)
    return start + rounds * (overhead + image * chunk) * max(1.0, workers / cores)


def simulated(chunks: int, workers: int, seconds_each: float, spread: float, lost: float) -> float:
    """Seconds until the last of many chunks is done, where their times differ and workers are lost.

    A chunk's time is lognormal with this spread; `lost` is the number of losses per worker and second, each of which
    costs half a chunk and makes the worker begin again.
    """
    times = seconds_each * random.lognormal(-(spread**2) / 2, spread, chunks)
    times *= 1 + 0.5 * random.poisson(lost * times)
    free = [0.0] * workers
    for each in times:
        heapq.heappushpop(free, free[0] + each)
    return max(free)


# ---------------------------------------------------------------------------------------------------- measuring


def worker(rank: int, count: int, rows: int, synchronised: bool, folder: str) -> None:
    """One of the processes: seconds of whole steps and of their parts, written by the first."""
    torch.set_num_threads(1)
    macs.keep_freed_memory()  # as every command does
    if count > 1:
        dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=count)
    processes = Processes(rank, count)
    torch.manual_seed(0)
    net: Any = nets.build("wrn-40-2", classes=10, dropout=0.0)
    net.to(memory_format=torch.channels_last)
    pixels = random.integers(0, 256, (2, 2048, 32, 32, 3), dtype=np.uint8)
    known, outliers = ImageSet.from_array(pixels[0], np.arange(2048) % 10, CLASSES), ImageSet.from_array(pixels[1])
    recipe = Recipe(batch_in=rows // 2, batch_out=rows // 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    method = methods.build("macs")
    batches = pixel_batches(net, net, known, outliers, recipe, torch.device("cpu"), processes)(0)
    found: dict[str, list[float]] = {"data": [], "processor": [], "elapsed": []}
    net.train()
    with shared_norms(net, processes, synchronised):
        for _ in range(STEPS + 1):
            if count > 1:
                dist.barrier()
            start, worked = time.perf_counter(), time.process_time()
            batch = next(batches)
            found["data"].append(time.process_time() - worked)
            optimizer.zero_grad()
            method.step(net, batch).loss.backward()
            processes.average(weight.grad for weight in net.parameters())
            optimizer.step()
            found["processor"].append(time.process_time() - worked)
            found["elapsed"].append(time.perf_counter() - start)
    for name, size in (("small", SMALL), ("large", LARGE)) if count > 1 else ():
        sent = torch.zeros(size // 4)
        found[name] = [seconds(partial(dist.all_reduce, sent)) for _ in range(30)]
    if rank == 0:
        told = {name: min(values[1:]) for name, values in found.items()}  # other programs only ever add
        (Path(folder) / "found.json").write_text(json.dumps(told))
    if count > 1:
        dist.barrier()
        dist.destroy_process_group()


def together(count: int, rows: int = 2 * ROWS, synchronised: bool = False) -> dict[str, float]:
    """What `count` processes measure."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [str(count), str(rows), str(int(synchronised)), folder]
        command = [sys.executable, __file__, "worker"]
        started = [subprocess.Popen([*command, str(rank), *arguments]) for rank in range(count)]
        if [process.wait() for process in started] != [0] * count:
            raise SystemExit("A process failed.")
        return json.loads((Path(folder) / "found.json").read_text())


def training() -> Machine:
    rows = 2 * ROWS
    alone = {each: together(1, each) for each in (rows // 4, rows // 2, rows)}
    compute = [alone[each]["processor"] - alone[each]["data"] for each in alone]
    slope, fixed = np.polyfit(list(alone), compute, 1)
    two = together(2)
    latency = two["small"]
    bandwidth = LARGE / (two["large"] - latency)
    here = Machine(max(fixed, 0.0), slope, alone[rows]["data"] / rows, bandwidth, latency, CORES)
    network = Network(sum(weight.numel() for weight in nets.build("wrn-40-2", classes=10).parameters()), 10)
    layers = [m for m in nets.build("wrn-40-2", classes=10).modules() if isinstance(m, torch.nn.BatchNorm2d)]
    synchronised = replace(network, norms=len(layers), channels=float(np.mean([m.num_features for m in layers])))
    show_constants(here)
    title = f"A step of WRN-40-2 with {ROWS} + {ROWS} images, one thread per process, in seconds"
    columns = ("model", "elapsed", "processor time", "its model")
    table = Table("processes", *PARTS, *columns, title=title, title_justify="left")
    cases: list[tuple[str, int, Network, dict[str, float]]] = [
        ("1", 1, network, alone[rows]),
        ("2", 2, network, two),
        ("4", 4, network, together(4)),
        ("2, --sync-bn", 2, synchronised, together(2, synchronised=True)),
    ]
    for name, count, sent, measured in cases:
        parts = here.step(rows, count, sent)
        model = sum(parts.values())
        own = (parts["data"] + parts["compute"]) / max(1.0, count / CORES)  # what does not wait for others
        cells = [f"{parts[part]:.4f}" if part in parts else "" for part in PARTS]
        cells += [f"{model:.3f}", f"{measured['elapsed']:.3f}", f"{measured['processor']:.3f}", f"{own:.3f}"]
        table.add_row(name, *cells)
    console.print(table)
    return here


def show_constants(here: Machine) -> None:
    console.print(f"{machine()}")
    console.print(
        f"a {here.fixed * 1e3:.1f} ms, b {here.row * 1e3:.2f} ms per row "
        f"({3 * WRN_40_2 / here.row / 1e9:.0f} GFLOP/s), d {here.data * 1e6:.0f} us per row, "
        f"B {here.bandwidth / 1e9:.2f} GB/s, L {here.latency * 1e6:.0f} us\n"
    )


def task_rate(ray: Any) -> float:
    """Empty tasks per second of one driver."""
    empty = ray.remote(num_cpus=1)(nothing)
    ray.get([empty.remote() for _ in range(50)])
    return 2000 / seconds(lambda: ray.get([empty.remote() for _ in range(2000)]))


def nothing() -> None:
    pass


def predictions(folder: Path) -> tuple[float, float]:
    """Jobs on local Ray clusters beside the model; returns the seconds per image, and a driver's tasks per second."""
    from macs.core.clusters import connected
    from macs.detector import Detector
    from macs.detector.ray_predict import predict_on_ray
    from macs.detector.runtime import Runtime

    photos, detector = folder / "photos", folder / "d.onnx"
    photos.mkdir()
    for number in range(IMAGES):
        Image.fromarray(random.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(photos / f"{number:05}.png")
    pixels = random.integers(0, 256, (64, 32, 32, 3), dtype=np.uint8)
    some = ImageSet.from_array(pixels, np.arange(64) % 10, CLASSES)
    Detector(nets.build("wrn-40-2", classes=10)).calibrate(some).export(detector)
    files = sorted(map(str, photos.iterdir()))[: 4 * CHUNK]
    judge = Runtime(detector, threads=1)

    def local() -> None:
        macs.data.batches.set_workers(1)
        for _ in judge.predict_files(files):
            pass

    local()
    image = min(seconds(local) for _ in range(2)) / len(files)
    title = f"{IMAGES:,} PNGs of 32 x 32 pixels in chunks of {CHUNK}, WRN-40-2 in float32, in seconds"
    table = Table("workers", "model", "measured", "ratio", "images/s", title=title, title_justify="left")
    rate = overhead = 0.0
    for workers in (1, 2, 4):
        start = time.perf_counter()
        ray = connected(None, {"num_cpus": workers, "object_store_memory": 200_000_000})
        up = time.perf_counter() - start
        predict_on_ray(detector, files[:CHUNK], str(folder / f"first-{workers}"), chunk=CHUNK)
        first = time.perf_counter() - start - up
        out = str(folder / f"out-{workers}")
        took = seconds(partial(predict_on_ray, detector, [str(photos)], out, chunk=CHUNK))
        if workers == 1:  # the one from which the rest is predicted; its worker is warm
            begin = first - CHUNK * image
            overhead = max(0.0, took / math.ceil(IMAGES / CHUNK) - CHUNK * image)
            console.print(
                f"c {image * 1e3:.2f} ms per image, o {overhead * 1e3:.0f} ms per chunk; "
                f"the cluster was up after {up:.1f} s, a new worker ready {begin:.1f} s after it was asked for"
            )
        # Ray starts a worker per CPU with the cluster, so that none starts within the job.
        model = job(IMAGES, CHUNK, workers, 0.0, overhead, image, CORES)
        table.add_row(str(workers), f"{model:.1f}", f"{took:.1f}", f"{model / took:.2f}", f"{IMAGES / took:.0f}")
        if workers == 2:
            rate = task_rate(ray)
        ray.shutdown()
    console.print(table)
    console.print(f"Empty tasks: {rate:.0f} per second.\n")
    return image, rate


# ---------------------------------------------------------------------------------------------------- elsewhere

# Assumed, and not measured by us.
GPU = Machine(
    fixed=8e-3,  # some 800 kernels of a WRN-40-2 forwards, backwards and in the optimizer, at 10 us each
    row=3 * WRN_40_2 / 20e12,  # 20 TFLOP/s in bf16 on small convolutions, a fifteenth of an A100's peak
    data=math.nan,  # as measured here, on one core per GPU
    bandwidth=100e9,  # NVLink, as collectives use it
    latency=20e-6,
)
ETHERNET = replace(GPU, bandwidth=1.2e9, latency=50e-6)  # 10 Gbit/s between machines
IMAGENET = Network(weights=2_371_256, classes=1000)  # WRN-40-2
IMAGENET_IMAGES = 1_281_167
MACHINES, CORES_EACH = 100, 16
LISTED = 1000 / 0.1  # names per second that one lister gets from an object store: pages of 1,000, 100 ms each
JPEG = 100e3  # bytes of an image
LINK = 1.2e9  # bytes per second of a machine's network
LOST = 1 / 86_400  # losses of a worker per second: one per day
SPREAD = 0.3  # of the times of chunks


def elsewhere(data: float, image: float, tasks: float) -> None:
    title = "ImageNet-32, WRN-40-2: a step in ms, and an epoch in minutes, as the model says with assumed constants"
    shown = PARTS[:4]
    table = Table("batch", "devices", *shown, "step", "speed-up", "epoch", title=title, title_justify="left")
    for rows in (256, 2048):
        for name, where, count in (("1 GPU", GPU, 1), ("8 GPUs", GPU, 8), ("8 machines", ETHERNET, 8)):
            parts, one = (replace(where, data=data).step(rows, each, IMAGENET) for each in (count, 1))
            step = sum(parts.values())
            columns = [f"{1e3 * parts[part]:.2f}" for part in shown]
            epoch = IMAGENET_IMAGES / (rows / 2) * step / 60
            faster = sum(one.values()) / step
            batch = f"{rows // 2} + {rows // 2}"
            table.add_row(batch, name, *columns, f"{1e3 * step:.1f}", f"{faster:.1f}", f"{epoch:.1f}")
    console.print(table)

    billion, workers = 1e9, MACHINES * CORES_EACH
    title = f"{MACHINES} machines of {CORES_EACH} cores like this one's"
    table = Table("a billion images", "hours", title=title, title_justify="left")
    shards, large = (simulated(round(billion / each), workers, each * image, SPREAD, LOST) for each in (1e4, 1e6))
    hours: dict[str, float] = {
        "computing": billion * image / workers,
        "reading over the network": billion * JPEG / MACHINES / LINK,
        "one driver listing them as single objects": billion / LISTED,
        "one driver handing out 2,000,000 chunks of 500": 2e6 / tasks,
        "listing and handing out 100,000 shards of 10,000": 1e5 / LISTED + 1e5 / tasks,
        "computing in shards, simulated with losses and stragglers": shards,
        "computing in 1,000 shards of a million, simulated": large,
    }
    for name, value in hours.items():
        table.add_row(name, f"{value / 3600:.2f}")
    console.print(table)


def main() -> None:
    if sys.argv[1:2] == ["worker"]:
        rank, count, rows, synchronised = map(int, sys.argv[2:6])
        return worker(rank, count, rows, bool(synchronised), sys.argv[6])
    here = training()
    with tempfile.TemporaryDirectory() as folder:
        image, tasks = predictions(Path(folder))
    elsewhere(here.data, image, tasks)
    return None


if __name__ == "__main__":
    main()
