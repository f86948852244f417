"""Draws docs/verdicts.png: images that a small network knows, images that it does not, and its verdicts on them.

    python docs/site/verdicts.py detector.safetensors

The detector is the one that docs/tutorial.md makes. The first images of each test set are shown, whatever the verdicts
are; they come with scikit-learn and scikit-image.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import macs

TARGET = Path(__file__).parents[1] / "verdicts.png"
SHOWN = {"digits": 4, "digits-8-9": 1, "digits-textures": 1, "digits-text": 1, "digits-scans": 1}
GREEN, RED = "#00796b", "#c62828"


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
        return list(images.pixels[:count])
    places = [int(np.flatnonzero(images.labels == label)[0]) for label in range(0, 2 * count, 2)]
    return list(images.pixels[:][places])


if __name__ == "__main__":
    draw(macs.Detector.load(sys.argv[1]), TARGET)
