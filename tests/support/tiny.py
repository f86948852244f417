"""Image sets small enough to train on in a second, and a network that knows one of them without any training."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import one_hot

from macs import nets
from macs.data import ImageSet

STRIPES = ("horizontal", "vertical", "plain")


def stripes(count: int, seed: int, size: int = 16) -> ImageSet:
    """Horizontal stripes, vertical stripes or none, at random brightness: three classes that a tiny network learns."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    dark, bright = random.integers(0, 100, (2, count, 1, 1)) + np.array([0, 155]).reshape(2, 1, 1, 1)
    rows, columns = np.indices((size, size)) // 2 % 2
    pattern = np.stack([rows, columns, np.zeros_like(rows)])[labels]
    pixels = np.where(pattern, bright, dark)[..., None].repeat(3, axis=-1).astype(np.uint8)
    return ImageSet.from_array(pixels, labels, STRIPES, name="stripes")


def noise(count: int, seed: int, size: int = 16) -> ImageSet:
    """Coloured noise: outliers."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return ImageSet.from_array(pixels, name="noise")


def classifier() -> nets.Net:
    """A WRN-10-1 that tells the stripes apart: random convolutions, and a last layer fitted by ridge regression."""
    torch.manual_seed(0)
    net = nets.build("wrn-10-1", classes=len(STRIPES)).eval()
    assert isinstance(net, nets.Net) and isinstance(net.fc, torch.nn.Linear)
    images = stripes(192, seed=1)
    with torch.no_grad():
        features, _ = nets.features_of(net, torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255)
        rows = torch.cat([features, torch.ones(len(features), 1)], dim=1)
        targets = 4.0 * one_hot(torch.from_numpy(images.labels), len(STRIPES))
        weights = torch.linalg.solve(rows.T @ rows + 1e-4 * torch.eye(rows.shape[1]), rows.T @ targets)
        net.fc.weight.copy_(weights[:-1].T)
        net.fc.bias.copy_(weights[-1])
    return net


def save(images: ImageSet, folder: Path, suffix: str = ".png") -> Path:
    """Write a set as files with the numbers of its images, in class folders if it has labels."""
    for index, pixels in enumerate(images.pixels[:]):
        name = "." if images.labels is None else images.classes[images.labels[index]]
        path = folder / name / f"{index:03}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def save_folders(root: Path) -> Path:
    """Write images in class folders, split into train and test, and outliers as a .npy file and as a folder."""
    for split, seed in (("train", 1), ("test", 2)):
        save(stripes(48, seed), root / "mine" / split)
    np.save(root / "outliers.npy", noise(64, seed=3).pixels[:])
    save(noise(20, seed=4), root / "unknown", ".jpg")
    return root
