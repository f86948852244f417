"""Training from a 4 GB .npy and from ImageNet-32's pickles: resident memory, and throughput against images in memory.

The network is small, so that its activations do not hide what the images cost.
"""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch

import macs
from bench import interleaved, memory_peak, report, resident, seconds
from macs import data, nets
from macs.data import ImageSet
from macs.training.recipe import Recipe

IMAGES, STEPS = 1_300_000, 30


def write_npy(path: Path) -> None:
    """1.3 million images, written a block at a time."""
    block = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    whole = np.lib.format.open_memmap(path, "w+", np.uint8, (IMAGES, 32, 32, 3))
    for start in range(0, IMAGES, len(block)):
        whole[start : start + len(block)] = block
    del whole


def write_imagenet32(folder: Path) -> None:
    """Ten training batches in the official layout, a quarter of their official size."""
    rows = np.random.default_rng(1).integers(0, 256, (32_000, 3072), dtype=np.uint8)
    labels = [1 + i % 1000 for i in range(len(rows))]
    folder.mkdir()
    for i in range(1, 11):
        with (folder / f"train_data_batch_{i}").open("wb") as file:
            pickle.dump({"data": rows, "labels": labels, "mean": rows.mean(axis=0)}, file, protocol=4)


def train(known: ImageSet, outliers: ImageSet) -> None:
    torch.manual_seed(0)
    net = nets.build("wrn-10-1", classes=len(known.classes))
    macs.finetune(net, known, outliers, recipe=Recipe(epochs=1, epoch_size=128 * STEPS), progress=False)


def main() -> None:
    macs.keep_freed_memory()  # as every command does
    random = np.random.default_rng(2)
    in_memory = ImageSet.from_array(random.integers(0, 256, (20_000, 32, 32, 3), dtype=np.uint8))
    known = ImageSet.from_array(255 - in_memory.pixels[:], random.integers(0, 10, 20_000), [str(i) for i in range(10)])
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_npy(root / "outliers.npy")
        write_imagenet32(root / "imagenet32")
        from_npy = data.load(root / "outliers.npy", "train")
        imagenet = data.load("imagenet32", "train", root=root)
        subset = ImageSet.from_array(imagenet.pixels[:20_000], imagenet.labels[:20_000], imagenet.classes)
        rates = {
            "outliers in memory": lambda: 256 * STEPS / seconds(lambda: train(known, in_memory)),
            "outliers in a 4 GB .npy": lambda: 256 * STEPS / seconds(lambda: train(known, from_npy)),
            "ImageNet-32 in memory": lambda: 256 * STEPS / seconds(lambda: train(subset, in_memory)),
            "ImageNet-32 in its pickles": lambda: 256 * STEPS / seconds(lambda: train(imagenet, in_memory)),
        }
        found = interleaved(rates, 3)
        grown = memory_peak(lambda: train(known, from_npy))
    medians = {name: case.median for name, case in found.items()}
    ratios: dict[str, float | str] = {
        ".npy / memory": medians["outliers in a 4 GB .npy"] / medians["outliers in memory"],
        "pickles / memory": medians["ImageNet-32 in its pickles"] / medians["ImageNet-32 in memory"],
        "resident memory at the end": f"{resident() / 1e9:.2f} GB",
        "growth while training from the .npy": f"{grown / 1e9:.2f} GB",
    }
    report("memory", "Training WRN-10-1 from files", found, "images/s", ratios)


if __name__ == "__main__":
    main()
