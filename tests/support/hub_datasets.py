"""Small datasets as Hugging Face's package makes them and writes them to disk."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from official import images

datasets = pytest.importorskip("datasets")
NAMES = ["cat", "dog", "cow"]


def pets(count: int = 6, seed: int = 0, **more: Any) -> Any:
    """A dataset with a column of images and one of labels, among others."""
    columns = {
        "id": [f"number {i}" for i in range(count)],
        "img": [Image.fromarray(pixels) for pixels in images(count, seed, size=8)],
        "animal": [i % 3 for i in range(count)],
    }
    features = {"id": datasets.Value("string"), "img": datasets.Image(), "animal": datasets.ClassLabel(names=NAMES)}
    features |= {name: feature for name, (feature, _) in more.items()}
    columns |= {name: values for name, (_, values) in more.items()}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def save_splits(folder: Path) -> Path:
    """train, validation and test, written by save_to_disk."""
    splits = {"train": pets(9, 1), "validation": pets(6, 2), "test": pets(6, 3)}
    datasets.DatasetDict(splits).save_to_disk(folder)
    return folder
