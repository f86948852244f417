"""`macs predict` on images in an object store, by Ray workers of which one is killed, beside the local command.

    PYTHONPATH=tests/support python benchmarks/object_store.py DATA CHECKPOINT                   20,000 images
    PYTHONPATH=tests/support python benchmarks/object_store.py DATA CHECKPOINT --images 2000     a trial

DATA is a folder with CIFAR-10, SVHN, CIFAR-100 and Places365, CHECKPOINT a WRN-40-2 for CIFAR-10. It is calibrated on
2,000 test images of CIFAR-10 and exported; other test images of the four sets become PNG files, in a folder and in an
S3-compatible server on this machine. Three commands judge them, each as a user would type it:

    macs predict photos/ --detector d.onnx --out local.parquet
    macs predict s3://bucket/photos/ --detector d.onnx --out stored.parquet
    macs predict s3://bucket/photos/ --detector d.onnx --engine ray --out s3://results/verdicts/

During the last one, when half of the files with verdicts are there, a Ray worker is killed by SIGKILL in the midst of
its work. Each image must then have exactly one row, and every command the same verdicts.

The server shares the cores with what it serves. So the processor time of the command, of the server, and of all other
programs on the machine stands beside the time that passed.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from rich.console import Console
from rich.table import Table

from bench import machine
from macs import data, nets
from macs.detector import Detector
from macs.detector.ray_predict import CHUNK
from s3_server import bucket

SHARES = {"cifar10": 0.4, "svhn": 0.25, "cifar100": 0.25, "places365": 0.1}  # of the images that are judged
CALIBRATION = 2_000  # test images of CIFAR-10, which are not judged
RESULTS = "results/verdicts"
WATCH = 0.5  # seconds between looks at the processes
TICK = os.sysconf("SC_CLK_TCK")
console = Console(width=120, highlight=False)
Rows = dict[str, dict[str, Any]]


# ------------------------------------------------------------------------------------------------ images and detector


def prepare(root: Path, checkpoint: Path, count: int, folder: Path) -> None:
    """Write the exported detector to d.onnx and the images to photos/SET/NUMBER.png."""
    for name, share in SHARES.items():
        images = data.load(name, "test", root=root)
        order = np.random.default_rng(0).permutation(len(images))
        if name == "cifar10":
            net = nets.load(checkpoint, "wrn-40-2", classes=10)
            Detector(net).calibrate(images.subset(order[:CALIBRATION])).export(folder / "d.onnx")
            order = order[CALIBRATION:]
        wanted = round(share * count)
        if wanted > len(order):
            raise SystemExit(f"{name} has {len(order):,} images, but {wanted:,} are needed; ask for fewer --images.")
        (folder / "photos" / name).mkdir(parents=True)
        for number, pixels in zip(order[:wanted], images.pixels[order[:wanted]], strict=True):
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number:05}.png")


# ------------------------------------------------------------------------------------------------ processes in /proc


def family(root: int) -> dict[int, float]:
    """A process and all below it, with the seconds of processor time that each has had so far."""
    parents, worked = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(path.parent.name)
        parents[pid], worked[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICK
    found: dict[int, float] = {}
    level = [root]
    while level:
        found |= {pid: worked[pid] for pid in level if pid in worked}
        level = [pid for pid, parent in parents.items() if parent in level]
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def busy_everywhere() -> float:
    """Seconds for which the machine's cores have worked, or were taken away by its host, since it was started."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(rest)) / TICK


@dataclass(frozen=True)
class Run:
    """What a command took, in seconds; all but the first are of processor time."""

    elapsed: float
    command: float  # with all its processes
    server: float
    others: float
    load: float  # average of the machine's last minute, before the command


def watched(arguments: list[str], server: int, look: Callable[[list[int]], None] = lambda family: None) -> Run:
    """Run a macs command to its end; `look` is shown its processes every now and then."""
    load, busy, before = os.getloadavg()[0], busy_everywhere(), family(os.getpid())
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "macs", *arguments])
    worked: dict[int, float] = {}
    while process.returncode is None:
        worked |= family(process.pid)
        look(list(worked))
        try:
            process.wait(WATCH)
        except subprocess.TimeoutExpired:
            continue
    elapsed = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"macs {' '.join(arguments)} ended with {process.returncode}.")
    after = family(os.getpid())
    ours = {pid: after[pid] - before[pid] for pid in (server, os.getpid())}
    others = busy_everywhere() - busy - sum(ours.values()) - sum(worked.values())
    return Run(elapsed, sum(worked.values()), ours[server], max(0.0, others), load)


def listed(system: Any, folder: str) -> list[str]:
    try:
        return system.ls(folder, detail=False, refresh=True)
    except FileNotFoundError:  # nothing is there yet
        return []


class Killer:
    """Kills one Ray worker in the midst of its work, when half of the files are there."""

    def __init__(self, system: Any, files: int) -> None:
        self.system, self.files = system, files
        self.workers: set[int] = set()  # all that were seen at work
        self.killed: int | None = None
        self.there = 0  # files when it was killed

    def __call__(self, family: list[int]) -> None:
        busy = [pid for pid in family if name_of(pid).startswith("ray::judge_chunk")]
        self.workers |= set(busy)
        if self.killed is not None or not busy:
            return
        self.there = len(listed(self.system, RESULTS))
        if self.there >= self.files // 2:
            self.killed = busy[0]
            os.kill(self.killed, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------ rows


def rows_in(files: list[Any], root: str) -> Rows:
    """The rows by the paths of their images below a folder or a URL; an error if an image has two."""
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    found = {row["path"].removeprefix(root).lstrip("/"): row for row in rows}
    if len(found) != len(rows):
        raise SystemExit(f"{len(rows):,} rows are of {len(found):,} images.")
    return found


def compared(found: Rows, local: Rows) -> str:
    """How this agrees with what the local command said, in words; an error if a verdict or label is another."""
    if found.keys() != local.keys():
        raise SystemExit(f"{len(found.keys() ^ local.keys()):,} images have a row in one place alone.")
    for what in ("is_ood", "index"):
        if other := sum(found[path][what] != local[path][what] for path in local):
            raise SystemExit(f"{other:,} of {len(local):,} images have another {what}.")
    largest = max(abs(found[path]["confidence"] - row["confidence"]) for path, row in local.items())
    return f"every verdict and label that of the local command, confidences within {largest:.1g}"


def show(runs: dict[str, Run], images: int) -> None:
    table = Table("macs predict", title="Seconds; processor time on the right", title_justify="left")
    for column in ("elapsed", "images/s", "command", "server", "other programs", "load before"):
        table.add_column(column, justify="right")
    for case, run in runs.items():
        times = [f"{each:.1f}" for each in (run.command, run.server, run.others)]
        table.add_row(case, f"{run.elapsed:.1f}", f"{images / run.elapsed:.0f}", *times, f"{run.load:.1f}")
    console.print(table)


def measure(folder: Path, url: str, server: int, images: int) -> None:
    """Upload the images, run the three commands, and check what they wrote."""
    import s3fs

    system = s3fs.S3FileSystem()
    start = time.perf_counter()
    system.put(str(folder / "photos"), "bucket/", recursive=True)
    system.mkdir("results")
    console.print(f"{machine()}\n{images:,} images, uploaded in {time.perf_counter() - start:.0f} s.")

    photos, stored, detector = str(folder / "photos"), f"{url}/photos/", ["--detector", str(folder / "d.onnx")]
    killer = Killer(system, files=-(-images // CHUNK))
    on_ray = ["predict", stored, *detector, "--engine", "ray", "--out", f"s3://{RESULTS}/"]
    runs = {
        "local files": watched(["predict", photos, *detector, "--out", str(folder / "local.parquet")], server),
        "S3": watched(["predict", stored, *detector, "--out", str(folder / "stored.parquet")], server),
        "S3, Ray, one worker killed": watched(on_ray, server, killer),
    }
    show(runs, images)
    local = rows_in([folder / "local.parquet"], photos)
    if len(local) != images:
        raise SystemExit(f"The local command has {len(local):,} rows.")
    console.print(f"S3: {compared(rows_in([folder / 'stored.parquet'], stored), local)}.")
    if killer.killed is None:
        raise SystemExit("No worker was killed.")
    files = listed(system, RESULTS)
    by_ray = rows_in([system.open(file) for file in files], stored)
    console.print(
        f"Ray: worker {killer.killed} was killed when {killer.there} of {killer.files} files were there; "
        f"{len(killer.workers)} workers in all. {len(by_ray):,} rows in {len(files)} files, each image once; "
        f"{compared(by_ray, local)}."
    )
    ood = {name: [row["is_ood"] for path, row in local.items() if path.startswith(f"{name}/")] for name in SHARES}
    console.print("OOD: " + ", ".join(f"{sum(each):,} of {len(each):,} {name}" for name, each in ood.items()) + ".")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--images", type=int, default=20_000, help=f"at least {3 * CHUNK:,}, or there is no middle")
    given = parser.parse_args()
    if given.images < 3 * CHUNK or given.images % 20:
        parser.error(f"--images must be a multiple of 20, and at least {3 * CHUNK:,}")
    # Ray shall reserve little memory, and its workers shall have the priority of the other commands.
    os.environ |= {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "200000000", "RAY_worker_niceness": "0"}
    with tempfile.TemporaryDirectory() as name, bucket() as url:
        (server,) = (pid for pid in family(os.getpid()) if "moto.server" in name_of(pid))
        prepare(given.data, given.checkpoint, given.images, Path(name))
        measure(Path(name), url, server, given.images)


if __name__ == "__main__":
    main()
