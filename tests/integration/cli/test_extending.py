"""Nine kinds of parts, each one file outside the package that a user wrote, used together through the command line.

Every expectation is computed from the colours of the images, with numpy and without macs.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

FILES = {
    "colours": """
        import numpy as np
        from macs.data import ImageSet
        from macs.data.catalog import Source, Split, dataset

        DARKEST = {"train": 0, "val": 30, "test": 60}

        @dataset(
            "colours", title="Plain colours", role="id", home="here", licence="CC0", citation="none",
            splits={name: Split(30) for name in DARKEST},
        )
        def colours(source: Source) -> ImageSet:
            labels = np.arange(30) % 3
            pixels = np.empty((30, 32, 32, 3), np.uint8)
            for i, image in enumerate(pixels):
                image[:] = DARKEST[source.split] + i
                image[..., labels[i]] = 255
            return ImageSet("colours", pixels, labels, ("red", "green", "blue"))
    """,
    "average": """
        from torch import Tensor, nn

        class Average(nn.Module):
            def __init__(self, classes: int) -> None:
                super().__init__()
                self.fc = nn.Linear(3, classes)
                nn.init.zeros_(self.fc.weight)
                nn.init.zeros_(self.fc.bias)

            def forward(self, pixels: Tensor) -> Tensor:
                return self.fc(pixels.mean(dim=(2, 3)))
    """,
    "levelling": """
        from dataclasses import dataclass
        from torch import Tensor
        from torch.nn.functional import cross_entropy
        from macs.methods import Method, method

        @method("level")
        @dataclass(frozen=True)
        class Level(Method):
            height: float = 1.0

            def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
                return cross_entropy(logits_in, labels) + (logits_out - self.height).square().mean()
    """,
    "central": """
        from dataclasses import dataclass, field
        from torch import Tensor
        from macs.inference import Outputs
        from macs.scores import Known, Score, score

        @score("centroid")
        @dataclass
        class Centroid(Score):
            reads = "features"
            fitted_to = "training images"
            unit: float = 1.0
            centre: Tensor = field(init=False)

            def learn(self, known: Known) -> dict[str, Tensor]:
                return {"centre": known.features.mean(0)}

            def confidence(self, outputs: Outputs) -> Tensor:
                return -(outputs.features - self.centre).norm(dim=1) / self.unit
    """,
    "told": """
        from collections.abc import Iterable
        from typing import TextIO
        from macs.detector.formats import output_format
        from macs.predictions import Verdict

        @output_format("sentences", suffix=".told")
        def write_sentences(rows: Iterable[Verdict], file: TextIO) -> None:
            for row in rows:
                print(f"{row.class_} at {row.confidence!r} is {'new' if row.is_ood else 'known'}", file=file)
    """,
    "gap": """
        import numpy as np
        from macs.metrics import Ranked, metric

        @metric("median_gap", title="Gap", better="higher", convention="median of ID less that of OOD confidences")
        def median_gap(ranked: Ranked) -> float:
            return np.median(ranked.negative) - np.median(ranked.positive)
    """,
    "listing": """
        from pathlib import Path
        from macs.experiments.cells import SerialEngine

        class Listing(SerialEngine):
            def run(self, cells, *more):
                cells = list(cells)
                Path("cells.txt").write_text(" ".join(cell.name for cell in cells))
                return super().run(cells, *more)
    """,
    "shrinking": """
        from torch import nn
        from macs.nets import LibraryNet, Preparation, net

        @net("shrunk")
        class Shrunk(LibraryNet):
            examples = ("shrunk/4",)

            def __init__(self, model, *, classes, size=None):
                head = nn.Linear(3 * int(model) ** 2, classes)
                wrapped = nn.Sequential(nn.AdaptiveAvgPool2d(int(model)), nn.Flatten(), head)
                super().__init__(f"shrunk/{model}", classes, wrapped, head, self.usual_preparation(model))

            @classmethod
            def usual_preparation(cls, model):
                return Preparation(16)
    """,
    "counting": """
        from macs import nets
        from macs.cli import app

        @app.command
        def weights(name: str, /, *, classes: int) -> None:
            print(sum(parameter.numel() for parameter in nets.build(name, classes=classes).parameters()))
    """,
}


def mean_colours(darkest: int) -> np.ndarray:
    """Of the 30 images of a split, in [0, 1]: one channel full, the other two growing brighter from image to image."""
    return np.where(np.arange(30)[:, None] % 3 == np.arange(3), 255, darkest + np.arange(30)[:, None]) / 255


def confidences_by_hand(colours: np.ndarray, unit: float) -> np.ndarray:
    return -np.sqrt(((colours - mean_colours(0).mean(0)) ** 2).sum(1)) / unit


CALLER = """
import contextlib, json, pathlib, sys

import counting, shrinking  # a library of networks and a command are registered by importing them
from macs.__main__ import main

for name, arguments in json.load(sys.stdin).items():
    sys.argv = ["macs", *arguments]
    with pathlib.Path(name).open("w") as file, contextlib.redirect_stdout(file):
        main()
"""


def test_every_kind_of_part_is_one_file_outside_the_package(tmp_path: Path) -> Any:
    for name, code in FILES.items():
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(code))
    work = tmp_path / "work"
    work.mkdir()
    greys = np.linspace(0, 255, 20).astype(np.uint8)[:, None, None, None].repeat(32, 1).repeat(32, 2).repeat(3, 3)
    np.save(work / "greys.npy", greys)
    score = "--score central:Centroid --score.unit 4"
    own = "--detector d.safetensors --net average:Average --score central:Centroid"
    run = "run --net average:Average"
    measure = f"evaluate {run} --id colours:colours --ood greys.npy {score} --metrics gap:median_gap"
    commands = {
        "checked": "data check colours:colours --json",
        "trained": "finetune --id colours:colours --outliers greys.npy --net average:Average --method levelling:Level "
        "--options.height 2 --epochs 1 --batch-in 30 --run run --json",
        "calibrated": f"calibrate {run} --images colours:colours {score} --keep 0.9 --out d.safetensors",
        "told": f"predict greys.npy {own} --format told:write_sentences",
        "written": f"predict greys.npy {own} --format told:write_sentences --out verdicts",
        "measured": f"{measure} --precision float32 --json",
        "table": measure,
        "swept": "sweep --id colours:colours --outliers greys.npy --validation 0.5 --net average:Average --method macs "
        "--margins 0 0.5 --epochs 1 --batch-in 30 --batch-out 10 --engine listing:Listing --run sweep --json",
        "counted": "weights shrunk/4 --classes 3",
    }
    places = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", CALLER],
        input=json.dumps({name: command.split() for name, command in commands.items()}),
        capture_output=True,
        text=True,
        check=False,
        cwd=work,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    )
    assert done.returncode == 0, done.stderr
    said = {name: (work / name).read_text() for name in commands}

    (train, *_) = json.loads(said["checked"])["splits"]
    assert (train["name"], train["split"], train["images"], train["status"]) == ("colours", "train", 30, "complete")

    (epoch,) = json.loads(said["trained"])["history"]
    assert math.isclose(epoch["loss"], math.log(3) + 2**2, rel_tol=1e-6)  # the network starts with logits of 0
    assert safetensors.numpy.load_file(work / "run/net.safetensors")["fc.weight"].shape == (3, 3)

    known, unknown = confidences_by_hand(mean_colours(60), 4), confidences_by_hand(greys.mean((1, 2)) / 255, 4)
    threshold = sorted(confidences_by_hand(mean_colours(30), 4))[2]  # the third lowest: floor(31 * (1 - 0.9)) = 3
    lines = said["told"].splitlines()
    names, found, verdicts = zip(*(line.replace(" is ", " at ").split(" at ") for line in lines), strict=True)
    assert set(names) <= {"red", "green", "blue"}
    np.testing.assert_allclose(np.array(found, float), unknown, rtol=1e-4)
    assert set(verdicts) == {"known", "new"}
    assert list(verdicts) == ["known" if confidence >= threshold else "new" for confidence in unknown]
    assert (work / "verdicts").read_text().splitlines() == lines

    value = json.loads(said["measured"])
    gap = statistics.median(known) - statistics.median(unknown)
    assert math.isclose(value["ood"]["greys.npy"]["full"]["median_gap"], gap, rel_tol=1e-4)
    assert value["conventions"]["median_gap"] == "median of ID less that of OOD confidences"
    assert "Gap ↑" in said["table"]

    assert [point["margin"] for point in json.loads(said["swept"])["curve"]] == [0, 0.5]
    assert (work / "cells.txt").read_text() == "macs-m0-seed0 macs-m0.5-seed0"
    assert int(said["counted"]) == (3 * 4 * 4 + 1) * 3
