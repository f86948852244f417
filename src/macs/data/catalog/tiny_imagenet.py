"""Tiny ImageNet: 200 classes of ImageNet at 64 x 64. Class names are WordNet ids, in sorted order.

On disk: train/<id>/images/*.JPEG, val/images/*.JPEG with val_annotations.txt, test/images/*.JPEG without labels.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from macs.core.files import input_file
from macs.data.catalog import Remote, Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.readers import damaged

FOLDER = "tiny-imagenet-200"
ARCHIVE = Remote(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",  # as in Avalanche and pytorch-ood
    size=248_100_043,
)


@dataset(
    "tiny-imagenet",
    title="Tiny ImageNet",
    role="outliers",
    splits={
        "train": Split(100_000, under(FOLDER, "train"), ARCHIVE),
        "val": Split(10_000, under(FOLDER, "val/images", "val/val_annotations.txt"), ARCHIVE),
        "test": Split(10_000, under(FOLDER, "test"), ARCHIVE),
    },
    home="http://cs231n.stanford.edu/",
    licence="ImageNet terms of access: non-commercial research and education",
    citation="Le, Yang: Tiny ImageNet Visual Recognition Challenge, 2015",
)
def tiny_imagenet(source: Source) -> ImageSet:
    labelled = source.split == "train"
    images = source.folder(labelled=labelled)
    return with_annotations(images, source.files[1]) if source.split == "val" else images


def with_annotations(images: ImageSet, table: Path) -> ImageSet:
    """Return labels from lines of: file name, WordNet id, bounding box."""
    lines = input_file(table).read_text(encoding="utf-8", errors="replace").splitlines()
    rows = (line.split("\t") for line in lines if line)
    class_of = {row[0]: row[1] for row in rows if len(row) > 1}
    if unlabelled := [name for name in images.files if name not in class_of]:
        raise damaged(table, f"it has no line for {unlabelled[0]}")
    classes, labels = np.unique([class_of[name] for name in images.files], return_inverse=True)
    return replace(images, labels=labels.astype(np.int64), classes=tuple(classes.tolist()))
