"""Processor time and memory against rows, images, classes, features and image size, as measured exponents.

    python benchmarks/growth.py [FIGURE.svg]

Each point runs in a process of its own with one thread; memory is what the work takes above what was held before. An
exponent is the slope of the logarithms between the two largest sizes, where fixed costs no longer count.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import macs
from bench import RESULTS, machine, memory_peak
from macs import nets, scores
from macs.data import ImageSet
from macs.inference import Outputs

CLASSES, FEATURES = 10, 64
ONCE = 1_000  # images or rows of the cases whose number of rows does not grow
GROWTHS = {  # what grows: the sizes, and how a message names it
    "rows judged from a file": (1_000, 10_000, 100_000, 1_000_000),
    "rows measured (AUROC, AUPR, FPR95)": (1_000, 10_000, 100_000, 1_000_000),
    "images of 32 pixels judged (WRN-10-1)": (500, 1_000, 4_000, 16_000),
    "classes, MSP": (10, 100, 1_000, 20_000),
    "classes, fDBD": (10, 100, 1_000, 5_000),
    "classes, Mahalanobis": (10, 100, 1_000, 5_000),
    "features, KNN with a bank of 10,000": (64, 256, 1_024, 4_096),
    "bank of KNN, 512 features": (1_000, 5_000, 20_000, 50_000),
    "pixels of an image (WRN-10-1)": (32**2, 64**2, 128**2, 256**2),
}
Work = Callable[[], object]


class Point(NamedTuple):
    size: int
    seconds: float
    megabytes: float


def prepared(what: str, size: int, folder: Path) -> Work:
    """The work of one point; what is done to prepare it is not measured."""
    random = np.random.default_rng(0)
    if what.startswith("rows judged"):
        path = folder / "logits.npy"
        whole = np.lib.format.open_memmap(path, "w+", np.float32, (size, CLASSES))
        for start in range(0, size, ONCE):  # rows of a generator
            whole[start : start + ONCE] = random.normal(size=(min(ONCE, size - start), CLASSES))
        del whole
        judge = macs.FeatureDetector("energy").calibrate(logits=random.normal(size=(500, CLASSES)))
        return lambda: sum(1 for _ in judge.predict_files(path))
    if what.startswith("rows measured"):
        confident, doubtful = random.normal(1, 1, size), random.normal(0, 1, size)
        return lambda: macs.metrics.ood_metrics(confident, doubtful)
    if "WRN-10-1" in what:
        edge = 32 if what.startswith("images") else math.isqrt(size)
        net = nets.build("wrn-10-1", classes=CLASSES)
        labels = random.integers(0, CLASSES, 100)
        some = ImageSet.from_array(pixels(random, 100, edge), labels, [str(i) for i in range(CLASSES)])
        detector = macs.Detector(net).calibrate(some)
        images = ImageSet.from_array(pixels(random, size if what.startswith("images") else 64, edge))
        return lambda: detector.predict(images)
    classes = size if what.startswith("classes") else CLASSES
    features = size if what.startswith("features") else 512 if what.startswith("bank") else FEATURES
    bank = (
        size
        if what.startswith("bank")
        else 10_000
        if what.startswith("features")
        else 2 * classes
        if what.endswith("Mahalanobis")
        else 1_000
    )
    train, weight = torch.randn(bank, features), torch.randn(classes, features)
    known = scores.Known(train @ weight.T, train, torch.arange(bank) % classes, weight, torch.zeros(classes))
    name = "knn" if "KNN" in what else what.partition(", ")[2].lower()
    fitted = scores.get(name).fit(known)
    del known
    new = torch.randn(ONCE, features)
    outputs = Outputs(new @ weight.T, new)
    return torch.no_grad()(lambda: fitted(outputs))


def pixels(random: np.random.Generator, count: int, edge: int) -> np.ndarray:
    return random.integers(0, 256, (count, edge, edge, 3), dtype=np.uint8)


def measured(what: str, size: int) -> Point:
    """One point, in this process; short work is repeated, and its first run only shows the memory."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        work = prepared(what, size, Path(folder))
        start = time.process_time()
        above = memory_peak(work) / 1e6
        first = time.process_time() - start
        times: list[float] = []
        macs.keep_freed_memory()  # as every command does; not before, or the memory would not show
        while first < 2 and len(times) < 4:
            start = time.process_time()
            work()
            times.append(time.process_time() - start)
    return Point(size, min(times, default=first), above)


def exponent(points: list[Point], value: str = "seconds") -> float:
    """The slope of log(value) over log(size) between the two largest sizes."""
    first, last = points[-2:]
    low, high = (max(getattr(point, value), 1e-6) for point in (first, last))
    return math.log(high / low) / math.log(last.size / first.size)


def draw(found: dict[str, list[Point]], path: Path) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"  # letters as text, a tenth of the size
    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 4.5))
    for what, points in found.items():
        sizes = [point.size / points[0].size for point in points]
        times.loglog(sizes, [point.seconds / points[0].seconds for point in points], marker="o", label=what)
        memory.semilogx(sizes, [point.megabytes for point in points], marker="o")
    times.plot([1, 1000], [1, 1000], color="grey", linestyle=":", label="linear")
    times.set(xlabel="size, in the smallest", ylabel="processor time, in that of the smallest")
    memory.set(xlabel="size, in the smallest", ylabel="memory above the start, MB")
    times.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def main() -> None:
    if sys.argv[1:2] == ["point"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found: dict[str, list[Point]] = {}
    for what, sizes in GROWTHS.items():
        for size in sizes:
            command = [sys.executable, __file__, "point", what, str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            found.setdefault(what, []).append(Point(*json.loads(done.stdout.splitlines()[-1])))
        line: Any = ", ".join(f"{p.size:,}: {p.seconds:.3g} s, {p.megabytes:.0f} MB" for p in found[what])
        print(f"{what}: exponent {exponent(found[what]):.2f}; {line}", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    draw(found, Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "growth.svg")
    values = {"machine": machine(), "points": found, "exponents": {what: exponent(found[what]) for what in found}}
    (RESULTS / "growth.json").write_text(json.dumps(values, indent=2) + "\n")


if __name__ == "__main__":
    main()
