"""Draws docs/verdicts.jpg: photographs that a detector knows, photographs that it does not, and its verdicts on them.

    python docs/site/verdicts.py imagenet_tf_efficientnet_lite0.safetensors

The detector is what `macs quickstart` makes of 500 crops of four photographs, 125 of each, with these weights. Shown
are the next crop of each of the four, and the middle of four other photographs, whatever the verdicts are. The
photographs come with scikit-learn and scikit-image; docs/index.md names their makers.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import skimage.data
from PIL import Image
from sklearn.datasets import load_sample_image

import macs
from macs.cli import run

TARGET = Path(__file__).parents[1] / "verdicts.jpg"
KNOWN = {
    "cat": skimage.data.chelsea(),
    "coffee": skimage.data.coffee(),
    "flower": load_sample_image("flower.jpg"),
    "palace": load_sample_image("china.jpg"),
}
UNKNOWN = (skimage.data.astronaut(), skimage.data.rocket(), skimage.data.retina(), skimage.data.hubble_deep_field())
CROPS = 125  # of each known photograph
EDGE = 256
GREEN, RED = "#00796b", "#c62828"


def crop(photograph: np.ndarray, random: np.random.Generator) -> Image.Image:
    """A square of 60% to 95% of the shorter side, somewhere in the photograph."""
    height, width = photograph.shape[:2]
    side = int(random.uniform(0.6, 0.95) * min(height, width))
    top, left = random.integers(height - side + 1), random.integers(width - side + 1)
    return Image.fromarray(photograph[top : top + side, left : left + side]).resize((EDGE, EDGE))


def middle(photograph: np.ndarray) -> Image.Image:
    height, width = photograph.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return Image.fromarray(photograph[top : top + side, left : left + side]).resize((EDGE, EDGE))


def write_crops(folder: Path) -> list[Image.Image]:
    """Write the crops into one folder per photograph, and return the next crop of each."""
    following = []
    for seed, (name, photograph) in enumerate(KNOWN.items()):
        random = np.random.default_rng(seed)
        (folder / name).mkdir(parents=True)
        for number in range(CROPS):
            crop(photograph, random).save(folder / name / f"{number:03}.png")
        following.append(crop(photograph, random))
    return following


def draw(detector: macs.Detector, pictures: list[Image.Image], target: Path) -> None:
    verdicts = detector.predict(pictures)
    figure, axes = plt.subplots(2, len(pictures) // 2, figsize=(8, 5), dpi=110)
    for axis, picture, name, p_value, unknown in zip(
        axes.flat, pictures, verdicts.class_, verdicts.p_value, verdicts.is_ood, strict=True
    ):
        colour = RED if unknown else GREEN
        axis.imshow(picture)
        axis.set(xticks=[], yticks=[])
        axis.set_title("unknown" if unknown else f"known: {name}", fontsize=13, color=colour, fontweight="bold")
        axis.set_xlabel(f"p = {p_value:.2f}", fontsize=11)
        for side in axis.spines.values():
            side.set(edgecolor=colour, linewidth=3)
    figure.tight_layout()
    figure.savefig(target, facecolor="white", pil_kwargs={"quality": 88})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary) / "photographs", Path(temporary) / "out"
        following = write_crops(folder)
        if code := run(["quickstart", str(folder), "--checkpoint", sys.argv[1], "--out", str(out)]):
            sys.exit(code)
        detector = macs.Detector.load(out / "detector.safetensors")
        draw(detector, [*following, *map(middle, UNKNOWN)], TARGET)
