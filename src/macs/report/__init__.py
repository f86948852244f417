"""The report on what a network knows and does not know: one HTML file that needs neither a server nor the internet.

    macs.report.write("report.html", net, test, {"svhn": svhn}, run="runs/mine")
    macs.report.write_detector("report.html", macs.Runtime("d.onnx"), test, {"svhn": svhn})

It holds a summary in words, a threshold to move, tables of both protocols in both conventions, plots, and the images
that go wrong first. The same network, images and run give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from macs.core.files import output_file, write_text

if TYPE_CHECKING:  # torch is loaded by the first report on a network, not by `import macs.report`
    from torch import nn

    from macs.data import ImageSet
    from macs.detector.base import ImageDetector
    from macs.evaluation import Evaluation
    from macs.scores import Score, Train


def write(
    path: str | Path,
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    *,
    run: str | Path | None = None,
    score: str | Score = "msp",
    train: Train = None,
    held_out: Train = None,
    precision: str = "auto",
    progress: bool = True,
) -> Evaluation:
    """Run the network over the ID test set and each OOD set once, write the page, and return its numbers.

    `run` is the folder of the network's training; with it, the page shows the recipe and the training curves. A score
    that is fitted needs ID training images as `train`; a sum of scores is standardised on `held_out`, other ID images.
    """
    from macs.report.findings import find_in_network
    from macs.report.page import render

    path = output_file(path)
    findings = find_in_network(net, test, ood, run, score, train, held_out, precision, progress)
    write_text(path, render(findings))
    return findings.evaluation


def write_detector(
    path: str | Path,
    detector: ImageDetector,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    *,
    train: Train = None,
    progress: bool = True,
) -> Evaluation:
    """The same from the confidences of a calibrated `Detector` or `Runtime`; the page shows its own thresholds too.

    With `train`, the ID training images, the page of a `Detector` whose score compares features with theirs shows the
    training images that are nearest to an image.
    """
    from macs.report.findings import find_in_detector
    from macs.report.page import render

    path = output_file(path)
    findings = find_in_detector(detector, test, ood, progress, train)
    write_text(path, render(findings))
    return findings.evaluation
