"""Small stand-ins for what the pages take from elsewhere: published weights, public datasets, and a reader's own code.

Each gets the folder that a page's blocks run in, and returns names that the blocks use.
"""

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torch import Tensor, nn

import macs
from macs.data.catalog import catalog
from macs.inference import Outputs
from macs.scores import Score
from official import write_cifar10
from openood_folder import write_openood
from tiny import STRIPES, noise, stripes

StandIn = Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]


def two_classes(count: int, seed: int) -> macs.ImageSet:
    """Stripes in either direction."""
    images = stripes(2 * count, seed)
    chosen = np.flatnonzero(images.labels < 2)[:count]
    return macs.ImageSet.from_array(images.pixels[:][chosen], images.labels[chosen], STRIPES[:2], name="stripes")


class MyNet(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(3, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pixels.mean(dim=(2, 3)))
        return logits


class MyScore(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits.std(dim=1)


def own_detector(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A detector file that holds a network and a score of the reader's."""
    torch.manual_seed(0)
    macs.Detector(MyNet(classes=10), MyScore()).calibrate(noise(40, 1)).save(folder / "d.safetensors")
    return {"MyNet": MyNet, "MyScore": MyScore}


def published_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What timm would download: a network for ImageNet, here with random weights; and photographs of known things."""
    timm = pytest.importorskip("timm")
    create = timm.create_model

    def downloaded(model: str, pretrained: bool = False, **options: Any) -> nn.Module:
        torch.manual_seed(0)
        net: nn.Module = create(model, **options)
        return net

    monkeypatch.setattr(timm, "create_model", downloaded)
    (folder / "known_photos").mkdir()
    for index, pixels in enumerate(noise(20, 2, size=64).pixels[:]):
        Image.fromarray(pixels).save(folder / "known_photos" / f"{index}.jpg")
    return {}


def cifar10(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """CIFAR-10 with 1,001 images per batch, in the archive of its authors, which the catalogue finds on this disk."""
    written = {split: len(labels) for split, (_, labels) in write_cifar10(folder / "made", per_batch=1001).items()}
    entry = catalog["cifar10"]
    archive = folder / entry.splits["train"].remote.name
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(folder / "made" / "cifar-10-batches-py", "cifar-10-batches-py")
    content = archive.read_bytes()
    splits = {}
    for name, split in entry.splits.items():
        md5 = hashlib.md5(content).hexdigest()
        remote = replace(split.remote, url=archive.as_uri(), md5=md5, size=len(content))
        splits[name] = replace(split, images=written[name], remote=remote)
    monkeypatch.setitem(catalog._entries, "cifar10", replace(entry, splits=splits))
    monkeypatch.setenv("MACS_DATA", str(folder / "data"))
    return {}


def flowers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Flowers102 with two images per split, in the files of its authors; torchvision knows the checksums of theirs."""
    torchvision = pytest.importorskip("torchvision")
    files = {name: (file, None) for name, (file, _) in torchvision.datasets.Flowers102._file_dict.items()}
    monkeypatch.setattr(torchvision.datasets.Flowers102, "_file_dict", files)
    base = folder / "data" / "flowers-102"
    (base / "jpg").mkdir(parents=True)
    for index, pixels in enumerate(noise(6, 3, size=40).pixels[:], 1):
        Image.fromarray(pixels).save(base / "jpg" / f"image_{index:05d}.jpg")
    savemat(base / "imagelabels.mat", {"labels": np.array([1, 2, 1, 2, 1, 2])})
    savemat(base / "setid.mat", {"trnid": [1, 2], "valid": [3, 4], "tstid": [5, 6]})
    return {}


def openood(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """OpenOOD's data folder with few images, and a network for the ten classes of CIFAR-10."""
    write_openood(folder / "OpenOOD" / "data")
    return {"net": macs.nets.build("wrn-10-1", classes=10)}


STAND_INS: dict[str, tuple[StandIn, ...]] = {
    "README.md": (published_weights,),
    "data.md": (cifar10,),
    "export.md": (own_detector,),
    "index.md": (published_weights,),
    "openood.md": (openood,),
    "timm.md": (published_weights,),
    "torchvision.md": (flowers,),
    "your-model.md": (published_weights,),
}
