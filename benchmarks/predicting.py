"""Verdicts for JPEG files: where the time goes, `predict_files` beside its parts, and the latency of a single file.

python benchmarks/predicting.py           all of it, with 1,000 JPEGs
python benchmarks/predicting.py 10000     so many different JPEGs, with the float32 runtime alone
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from onnxruntime import InferenceSession, SessionOptions
from PIL import Image

import macs
from bench import interleaved, report, seconds
from exported import images
from macs import nets
from macs.data import ImageSet
from macs.data.batches import BATCH
from macs.data.image_files import find_images
from macs.data.preparation import Preparation, open_rgb
from macs.detector import Detector
from macs.detector.base import ImageDetector, decoded
from macs.detector.runtime import OUTPUTS, Runtime

T = TypeVar("T")
EDGES = (500, 2000, 4000)
ROUND = 1_000  # files that a case judges in a round, so that a change of the machine's load meets all cases alike
random = np.random.default_rng(0)


def jpeg(file: Path, width: int, height: int) -> Path:
    """Random shapes with weak noise, which compress about as photographs do."""
    shapes = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(shapes).resize((width, height), Image.Resampling.BICUBIC))
    noise = random.integers(-6, 7, smooth.shape, dtype=np.int8)
    Image.fromarray((smooth.astype(np.int16) + noise).clip(0, 255).astype(np.uint8)).save(file, quality=88)
    return file


def processor_time(work: Callable[[], object], images: int = 1) -> float:
    """Milliseconds of this thread per image; other programs disturb them less than they do the time that passes."""
    start = time.thread_time()
    work()
    return (time.thread_time() - start) * 1000 / images


def milliseconds(work: Callable[[], object]) -> float:
    return seconds(work) * 1000


def ask(judge: ImageDetector, pixels: NDArray[np.uint8]) -> None:
    with judge.asking() as answer:
        for start in range(0, len(pixels), BATCH):
            answer(pixels[start : start + BATCH])


def ask_bare(onnx: InferenceSession, pixels: NDArray[np.uint8]) -> None:
    for start in range(0, len(pixels), BATCH):
        onnx.run(OUTPUTS, {"images": pixels[start : start + BATCH]})


def ask_of_files(judge: ImageDetector, files: Path | list[Path]) -> None:
    exhaust(judge.predict_files(files))


def exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


def stages(folder: Path) -> None:
    """From the file to the verdict, on one core."""
    Detector(nets.build("wrn-10-1", classes=10)).calibrate(images(64, 224)).export(folder / "large.onnx")
    networks = {"WRN-40-2 at 32": (32, "float32.onnx"), "WRN-10-1 at 224": (224, "large.onnx")}
    cases: dict[str, Callable[[], float]] = {}
    for name, (size, onnx) in networks.items():
        work = partial(ask, Runtime(folder / onnx, threads=1), images(16, size).pixels[:])
        cases[name] = partial(processor_time, work, 16)
    for edge in EDGES:
        file = jpeg(folder / f"{edge}.jpg", edge, edge * 3 // 4)
        picture = open_rgb(file)
        cases[f"{edge} pixels, reading"] = partial(processor_time, file.read_bytes)
        cases[f"{edge} pixels, reading and decoding"] = partial(processor_time, partial(open_rgb, file))
        for size, _ in networks.values():
            whole, draft = Preparation(size), Preparation(size, draft=True)
            cases[f"{edge} pixels, resizing to {size}"] = partial(processor_time, partial(whole, picture))
            cases[f"{edge} pixels to {size}"] = partial(processor_time, partial(whole.read, file))
            cases[f"{edge} pixels to {size}, draft"] = partial(processor_time, partial(draft.read, file))
    found = interleaved(cases, 15)
    ratios: dict[str, float] = {}
    for edge in EDGES:
        for name, (size, _) in networks.items():
            whole_file, network = found[f"{edge} pixels to {size}"].median, found[name].median
            ratios[f"{edge} pixels: file / network, {name}"] = whole_file / network
            ratios[f"{edge} pixels to {size}: whole / draft"] = (
                whole_file / found[f"{edge} pixels to {size}, draft"].median
            )
    report("predicting-stages", "One JPEG on one core", found, "ms", ratios)


def rates(judges: Mapping[str, ImageDetector], files: list[Path], rounds: int) -> None:
    """Many files, beside their decoding alone and the network alone; the cases take turns, each with the next files."""
    parts = [files[start : start + ROUND] for start in range(0, len(files), ROUND)]
    pixels = [ImageSet.from_files(part).pixels[:] for part in parts]
    quiet = SessionOptions()
    quiet.log_severity_level = 3

    def in_turn(work: Callable[[T], object], on: Sequence[T]) -> Callable[[], float]:
        """Images per second of the work on the next part."""
        coming = cycle(zip(on, parts, strict=True))

        def measure() -> float:
            inputs, part = next(coming)
            return len(part) / seconds(lambda: work(inputs))

        return measure

    cases = {"decoding": in_turn(lambda part: exhaust(decoded(find_images(part), Preparation())), parts)}
    for name, judge in judges.items():
        if isinstance(judge, Runtime):
            bare = InferenceSession(judge.path, quiet)
            cases[f"{name}, bare ONNX Runtime"] = in_turn(partial(ask_bare, bare), pixels)
        cases[f"{name}, ready pixels"] = in_turn(partial(ask, judge), pixels)
        cases[f"{name}, files"] = in_turn(partial(ask_of_files, judge), parts)
    found = interleaved(cases, rounds, warm_up=len(parts) == 1)
    ratios: dict[str, float] = {}
    for name in judges:
        whole, network = found[f"{name}, files"].median, found[f"{name}, ready pixels"].median
        separately = 1 / (1 / found["decoding"].median + 1 / network)
        ratios |= {
            f"{name}: files / ready pixels": whole / network,
            f"{name}: files / one after the other": whole / separately,
        }
        if bare := found.get(f"{name}, bare ONNX Runtime"):
            ratios[f"{name}: files / bare ONNX Runtime"] = whole / bare.median
    title = f"{len(files):,} JPEGs of 128 to 500 pixels in {rounds} rounds of {len(parts[0]):,}, WRN-40-2"
    report("predicting", title, found, "images/s", ratios)


def latency(judges: Mapping[str, ImageDetector], file: Path) -> None:
    """One file in a call of its own, when everything is warm."""
    pixels = Preparation()(open_rgb(file))
    work: dict[str, Callable[[], object]] = {"decoding and resizing": lambda: Preparation()(open_rgb(file))}
    for name, judge in judges.items():
        work[f"{name}, ready pixels"] = partial(judge.predict, pixels)
        work[f"{name}, file"] = partial(ask_of_files, judge, file)
    found = interleaved({name: partial(milliseconds, each) for name, each in work.items()}, 51)
    ratios = {
        f"{name}: file / ready pixels": found[f"{name}, file"].median / found[f"{name}, ready pixels"].median
        for name in judges
    }
    report("predicting-latency", "One JPEG of 500 x 375 pixels, WRN-40-2", found, "ms", ratios)


def pictures(folder: Path, count: int) -> list[Path]:
    """So many different JPEGs."""
    edges = random.integers(128, 501, (count, 2)).tolist()
    return [jpeg(folder / f"picture{i}.jpg", *edge) for i, edge in enumerate(edges)]


def main() -> None:
    macs.keep_freed_memory()  # as every command does
    torch.manual_seed(0)
    detector = Detector(nets.build("wrn-40-2", classes=10)).calibrate(images(64))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        detector.export(folder / "float32.onnx")
        if len(sys.argv) > 1:
            files = pictures(folder, int(sys.argv[1]))
            rates({"float32": Runtime(folder / "float32.onnx")}, files, rounds=-(-len(files) // ROUND))
            return
        detector.export_int8(folder / "int8.onnx", images(128), max_drop=100)  # random weights: no accuracy to lose
        judges: dict[str, ImageDetector] = {"PyTorch": detector}
        judges |= {kind: Runtime(folder / f"{kind}.onnx") for kind in ("float32", "int8")}
        stages(folder)
        rates(judges, pictures(folder, ROUND), rounds=5)
        latency(judges, folder / f"{EDGES[0]}.jpg")


if __name__ == "__main__":
    main()
