"""An exported WRN-40-2 detector in ONNX Runtime: 8-bit integers and float32, beside the same detector in PyTorch."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from bench import interleaved, report, seconds
from macs import nets
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.runtime import session

BATCH, IMAGES = 32, 1024
NAMES = ["index", "confidence", "is_ood"]
random = np.random.default_rng(0)


def images(count: int, size: int = 32) -> ImageSet:
    pixels = random.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return ImageSet.from_array(pixels, random.integers(0, 10, count), [str(i) for i in range(10)])


def main() -> None:
    torch.manual_seed(0)
    detector = Detector(nets.build("wrn-40-2", classes=10)).calibrate(images(64))
    with tempfile.TemporaryDirectory() as folder:
        whole, small = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        detector.export(whole)
        detector.export_int8(small, images(128), max_drop=100)  # random weights have no accuracy to lose
        onnx = {name: session(file.read_bytes()) for name, file in (("float32", whole), ("int8", small))}
    asked = images(IMAGES)
    batches = np.split(asked.pixels[:], IMAGES // BATCH)
    work = {
        "PyTorch": lambda: detector.predict(asked),
        **{
            f"ONNX Runtime, {name}": lambda one=one: [one.run(NAMES, {"images": batch}) for batch in batches]
            for name, one in onnx.items()
        },
    }
    cases = {name: lambda each=each: IMAGES / seconds(each) for name, each in work.items()}
    found = interleaved(cases, 3)
    int8, float32 = (found[f"ONNX Runtime, {name}"].median for name in ("int8", "float32"))
    ratios = {"int8 / float32": int8 / float32, "float32 / PyTorch": float32 / found["PyTorch"].median}
    report("exported", "Verdicts of a WRN-40-2 detector", found, "images/s", ratios)


if __name__ == "__main__":
    main()
