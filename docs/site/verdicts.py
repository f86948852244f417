"""Draws docs/verdicts.png: images that a small network knows, images that it does not, and its verdicts on them.

    python docs/site/verdicts.py            # trains for a minute or two

The network is that of `macs demo` with MaCS and seed 0, calibrated to keep 95% of known images. The first images of
each test set are shown, whatever the verdicts are.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

import macs
from macs.demo import trained

TARGET = Path(__file__).parents[1] / "verdicts.png"
SHOWN = {"digits": 4, "digits-8-9": 1, "digits-textures": 1, "digits-faces": 1, "digits-text": 1}
GREEN, RED = "#00796b", "#c62828"


def trained_detector() -> macs.Detector:
    with TemporaryDirectory() as folder:
        _, tuned = trained(Path(folder), seed=0, progress=True)
        return macs.Detector(tuned("macs")).calibrate(macs.data.load("digits", "val"), keep=0.95)


def draw(detector: macs.Detector, target: Path) -> None:
    pictures = [picture for name, count in SHOWN.items() for picture in first_of(name, count)]
    verdicts = detector.predict(np.stack(pictures))
    figure, axes = plt.subplots(1, len(pictures), figsize=(1.25 * len(pictures), 1.75), dpi=110)
    for axis, picture, name, p_value, unknown in zip(
        axes, pictures, verdicts.names, verdicts.p_values, verdicts.is_ood, strict=True
    ):
        colour = RED if unknown else GREEN
        axis.imshow(picture)
        axis.set(xticks=[], yticks=[])
        axis.set_title("unknown" if unknown else f"known: {name}", fontsize=9, color=colour, fontweight="bold")
        axis.set_xlabel(f"p = {p_value:.2f}", fontsize=8)
        for side in axis.spines.values():
            side.set(edgecolor=colour, linewidth=2.5)
    figure.tight_layout()
    figure.savefig(target, facecolor="white")


def first_of(name: str, count: int) -> list[np.ndarray]:
    """The first images of a set; of the digits, the first of each of several classes."""
    images = macs.data.load(name, "test")
    if name != "digits":
        return [images.pixels[index] for index in range(count)]
    places = [int(np.flatnonzero(images.labels == label)[0]) for label in range(0, 2 * count, 2)]
    return [images.pixels[place] for place in places]


if __name__ == "__main__":
    draw(trained_detector(), Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
