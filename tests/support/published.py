"""The datasets in miniature, packed as their authors pack them, and a catalogue that expects them."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from archives import contents, tar, zipped
from macs.data.catalog import catalog
from official import (
    images,
    write_cifar10,
    write_cifar100,
    write_imagenet32,
    write_png,
    write_svhn,
    write_tiny_imagenet,
)

IMAGES = {
    "300k": {"train": 7},
    "cifar10": {"train": 20, "test": 4},
    "cifar100": {"train": 3, "test": 3},
    "imagenet32": {"train": 30, "test": 3},
    "isun": {"test": 3},
    "lsun-c": {"test": 2},
    "places365": {"test": 4},
    "svhn": {"train": 2, "test": 3},
    "textures": {"test": 2},
    "tiny-imagenet": {"train": 3, "val": 2, "test": 1},
}


ARCHIVES = {
    "cifar10": "cifar-10-python.tar.gz",
    "cifar100": "cifar-100-python.tar.gz",
    "isun": "iSUN.tar.gz",
    "lsun-c": "LSUN.tar.gz",
    "places365": "val_256.tar",
    "textures": "dtd-r1.0.1.tar.gz",
    "tiny-imagenet": "tiny-imagenet-200.zip",
}
PICTURES = {
    "isun": [f"iSUN/iSUN_patches/{i}.jpeg" for i in range(3)],
    "lsun-c": ["LSUN/test/1.jpg", "LSUN/test/2.jpg"],
    "places365": [f"val_256/Places365_val_0000000{i}.jpg" for i in range(1, 5)],
    "textures": ["dtd/images/banded/banded_1.jpg", "dtd/images/woven/woven_1.jpg"],
}


def publish(name: str, folder: Path) -> dict[str, bytes]:
    """The files that the authors of a dataset give out, by name; what they hold is written into `folder`."""
    match name:
        case "300k":
            np.save(folder / "300K_random_images.npy", images(7))
        case "cifar10":
            write_cifar10(folder)
        case "cifar100":
            write_cifar100(folder)
        case "imagenet32":
            write_imagenet32(folder / "imagenet32")
        case "svhn":
            write_svhn(folder / "train_32x32.mat", images(2), [10, 1])
            write_svhn(folder / "test_32x32.mat", images(3), [5, 2, 10])
        case "tiny-imagenet":
            write_tiny_imagenet(folder)
        case _:
            for i, picture in enumerate(PICTURES[name]):
                write_png(folder / picture, images(1, i, size=40)[0])
    made = contents(folder)
    if name == "imagenet32":  # two archives, of files that lie flat
        batches = {Path(file).name: content for file, content in made.items()}
        val = {"val_data": batches.pop("val_data")}
        return {"Imagenet32_train.zip": zipped(batches), "Imagenet32_val.zip": zipped(val)}
    return {ARCHIVES[name]: pack(ARCHIVES[name], made)} if name in ARCHIVES else made


def pack(archive: str, files: dict[str, bytes]) -> bytes:
    return zipped(files) if archive.endswith(".zip") else tar(files, "gz" if archive.endswith(".gz") else "")


def expect(monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes], base: str = "") -> None:
    """Make the catalogue know the miniature: its numbers and, as far as they are published, its sizes and checksums."""
    entry = catalog[name]
    splits = {}
    for split, known in entry.splits.items():
        remote, content = known.remote, files[known.remote.name]
        md5 = hashlib.md5(content).hexdigest() if remote.md5 else ""
        url = f"{base}/{remote.name}" if base else remote.url
        remote = replace(remote, url=url, md5=md5, size=len(content) if remote.size else 0)
        splits[split] = replace(known, images=IMAGES[name][split], remote=remote)
    monkeypatch.setitem(catalog._entries, name, replace(entry, splits=splits))
