"""Writes OpenOOD's data folder for its benchmark on CIFAR-10, with few images."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# set: where its pictures are, below the data folder, and their mode, size and suffix
OOD = {
    "cifar100": ("images_classic/cifar100/test/apple", "RGB", (32, 32), "png"),
    "tin": ("images_classic/tin/val/n01443537", "RGB", (64, 64), "JPEG"),
    "mnist": ("images_classic/mnist/test", "L", (28, 28), "jpg"),
    "svhn": ("images_classic/svhn/test/1", "RGB", (32, 32), "jpg"),
    "texture": ("images_classic/texture/banded", "RGB", (90, 61), "jpg"),
    "places365": ("images_classic/places365/airfield", "RGB", (50, 71), "jpg"),
}


def write_pictures(root: Path, folder: str, mode: str, size: tuple[int, int], suffix: str, count: int) -> list[str]:
    """Pictures with coarse random patterns; returns their paths as the lists have them."""
    random = np.random.default_rng(len(folder))
    (root / folder).mkdir(parents=True, exist_ok=True)
    names = []
    for i in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8)).convert(mode)
        path = Path(folder) / f"{i:04}.{suffix}"
        coarse.resize(size, Image.Resampling.BICUBIC).save(root / path, quality=95)
        names.append(path.relative_to(Path(folder).parts[0]).as_posix())
    return names


def write_list(root: Path, name: str, lines: list[str]) -> None:
    file = root / "benchmark_imglist" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def write_openood(root: Path) -> None:
    """All lists of the benchmark, and the pictures that they name."""
    for split, count in (("train", 3), ("test", 2)):
        lines = []
        for label, name in enumerate(CLASSES):
            folder = f"images_classic/cifar10/{split}/{name}"
            lines += [f"{path} {label}" for path in write_pictures(root, folder, "RGB", (32, 32), "png", count)]
        write_list(root, f"cifar10/{split}_cifar10.txt", lines)
    for name, (folder, mode, size, suffix) in OOD.items():
        paths = write_pictures(root, folder, mode, size, suffix, 7)
        write_list(root, f"cifar10/test_{name}.txt", [f"{path} -1" for path in paths])
    for file, folder in (("val_tin", "tin/val/n01910747"), ("train_tin597", "tin/train/n01443537")):
        paths = write_pictures(root, f"images_classic/{folder}", "RGB", (64, 64), "JPEG", 5)
        write_list(root, f"cifar10/{file}.txt", [f"{path} -1" for path in paths])
