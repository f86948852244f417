"""CIFAR-10 and CIFAR-100, the "python version": pickles of rows, as cifar-10-python.tar.gz unpacks them."""

from pathlib import Path

import numpy as np

from macs.data.catalog import Remote, Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import damaged, read_pickle, read_rows, text

HOME = "https://www.cs.toronto.edu/~kriz/cifar.html"
LICENCE = "none stated"
CITATION = "Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009"


def read_cifar(source: Source, labels: str, names: str) -> ImageSet:
    """The last file holds the class names, the others hold the images."""
    *batches, meta = source.files
    classes = class_names(meta, names)
    parts = [read_rows(batch, labels, len(classes)) for batch in batches]
    return ImageSet("cifar", np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), classes)


def class_names(meta: Path, key: str) -> tuple[str, ...]:
    names = read_pickle(meta).get(key)
    if not isinstance(names, list) or not all(isinstance(name, str | bytes) for name in names):
        raise damaged(meta, f"it has no {key}")
    return tuple(text(name) for name in names)


BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
FOLDERS_10 = "cifar-10-batches-py cifar10/cifar-10-batches-py cifar10"
CIFAR10 = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    size=170_498_071,
)


@dataset(
    "cifar10",
    title="CIFAR-10",
    role="id",
    splits={
        "train": Split(50_000, under(FOLDERS_10, *BATCHES, "batches.meta"), CIFAR10, parts=5),
        "test": Split(10_000, under(FOLDERS_10, "test_batch", "batches.meta"), CIFAR10),
    },
    home=HOME,
    licence=LICENCE,
    citation=CITATION,
)
def cifar10(source: Source) -> ImageSet:
    return read_cifar(source, "labels", "label_names")


FOLDERS_100 = "cifar-100-python cifar100/cifar-100-python cifar100"
CIFAR100 = Remote(
    "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    size=169_001_437,
)


@dataset(
    "cifar100",
    title="CIFAR-100, fine labels",
    role="id",
    splits={
        "train": Split(50_000, under(FOLDERS_100, "train", "meta"), CIFAR100),
        "test": Split(10_000, under(FOLDERS_100, "test", "meta"), CIFAR100),
    },
    home=HOME,
    licence=LICENCE,
    citation=CITATION,
)
def cifar100(source: Source) -> ImageSet:
    return read_cifar(source, "fine_labels", "fine_label_names")
