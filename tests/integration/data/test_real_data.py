"""The real datasets, in the official formats, where MACS_DATA points at them."""

from pathlib import Path

import numpy as np
import pytest

from macs import data
from macs.data.pixels import Mapped

pytestmark = pytest.mark.data


def found(root: Path, name: str, split: str) -> data.ImageSet:
    rows = {row.name: row for row in data.catalog_rows(root)}
    if split not in rows[name].found:
        pytest.skip(f"the {split} split of {name} is not there")
    return data.load(name, split, root=root)


@pytest.mark.parametrize(
    ("split", "count", "first"), [("train", 50_000, [6, 9, 9, 4, 1]), ("test", 10_000, [3, 8, 8, 0, 6])]
)
def test_cifar10(data_root: Path, split: str, count: int, first: list[int]) -> None:
    images = found(data_root, "cifar10", split)
    assert images.pixels.shape == (count, 32, 32, 3)
    assert np.bincount(images.labels).tolist() == [count // 10] * 10
    assert images.labels[:5].tolist() == first
    assert " ".join(images.classes) == "airplane automobile bird cat deer dog frog horse ship truck"


def test_cifar10_has_its_well_known_mean_and_deviation(data_root: Path) -> None:
    images = found(data_root, "cifar10", "train").pixels[:]
    mean = [images[..., channel].mean() for channel in range(3)]
    deviation = [images[..., channel].std() for channel in range(3)]
    np.testing.assert_allclose(mean, [125.3, 123.0, 113.9], atol=0.06)
    np.testing.assert_allclose(deviation, [63.0, 62.1, 66.7], atol=0.06)


def test_cifar100(data_root: Path) -> None:
    images = found(data_root, "cifar100", "test")
    assert len(images.classes) == 100 and {"apple", "worm"} <= set(images.classes)
    assert set(images.labels.tolist()) == set(range(100))


def test_svhn(data_root: Path) -> None:
    images = found(data_root, "svhn", "test")
    assert images.labels[:5].tolist() == [5, 2, 1, 0, 6]
    counts = np.bincount(images.labels)
    assert len(counts) == 10 and counts.argmax() == 1  # house numbers start with 1 most often


@pytest.mark.parametrize("name", ["textures", "places365"])
def test_folders_of_classes(data_root: Path, name: str) -> None:
    images = found(data_root, name, "test")
    assert images.size == 32 and len(images.classes) >= 10
    assert {file.split("/")[0] for file in images.files} == set(images.classes)
    assert np.unique(images.pixels[:200].reshape(200, -1), axis=0).shape[0] > 190


def test_an_array_of_outliers_is_memory_mapped(data_root: Path) -> None:
    path = data_root / "outliers_train.npy"
    if not path.exists():
        pytest.skip("outliers_train.npy is not there")
    images = data.load(path, "train")
    assert isinstance(images.pixels, Mapped) and images.size == 32
    assert 50 < images.pixels[:1000].mean() < 200
