"""How long `macs` takes to start: processor time of whole commands, in starts of a bare interpreter.

python benchmarks/starting.py [FOLDER]      FOLDER: a macs to import in place of this one, such as another clone's src
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench import interleaved, report
from exported import images
from macs import nets
from macs.detector import Detector

ROUNDS = 9


def processor_seconds(command: list[str], source: str) -> float:
    """User and system time of a command; other programs disturb them less than they do the time that passes."""
    environment = {**os.environ, "PYTHONPATH": source}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=False, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    sources = {"": str(Path(__file__).parents[1] / "src")} | ({"before: ": sys.argv[1]} if len(sys.argv) > 1 else {})
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        detector, photo = Path(name, "d.onnx"), Path(name, "x.jpg")
        Detector(nets.build("wrn-40-2", classes=10)).calibrate(images(64)).export(detector)
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (150, 200, 3), dtype=np.uint8)).save(photo)
        macs = [sys.executable, "-m", "macs"]
        commands = {
            "macs --help": [*macs, "--help"],
            "macs predict with a wrong flag": [*macs, "predict", str(photo), "--detctor", str(detector)],
            "macs predict --help": [*macs, "predict", "--help"],
            "macs predict x.jpg --detector d.onnx": [*macs, "predict", str(photo), "--detector", str(detector)],
        }
        cases: dict[str, Callable[[], float]] = {
            "bare interpreter": partial(processor_seconds, [sys.executable, "-c", ""], ""),
            **{
                f"{which}{case}": partial(processor_seconds, command, source)
                for case, command in commands.items()
                for which, source in sources.items()
            },
        }
        found = interleaved(cases, ROUNDS)
    bare = found["bare interpreter"].median
    ratios = {f"{case} / bare interpreter": each.median / bare for case, each in found.items() if each.median > bare}
    report("starting", "Starting a command", found, "s of processor time", ratios)


if __name__ == "__main__":
    main()
