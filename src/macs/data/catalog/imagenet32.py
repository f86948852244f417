"""ImageNet-1k reduced to 32 x 32: ten pickled training batches and the validation set, which serves as the test set.

The files number the 1,000 classes from 1 in an order of their own and do not name them; so do we.
"""

import numpy as np

from macs.data.catalog import Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.pixels import Joined
from macs.data.readers import read_rows

TRAIN = [f"train_data_batch_{i}" for i in range(1, 11)]


@dataset(
    "imagenet32",
    title="Downsampled ImageNet, 32 x 32",
    role="id",
    splits={
        "train": Split(1_281_167, under("imagenet32 Imagenet32 Imagenet32_train Imagenet32/Imagenet32_train", *TRAIN)),
        "test": Split(50_000, under("imagenet32 Imagenet32 Imagenet32_val Imagenet32/Imagenet32_val", "val_data")),
    },
    home="https://image-net.org/download-images.php",
    licence="ImageNet terms of access: non-commercial research and education",
    citation="Chrabaszcz, Loshchilov, Hutter: A Downsampled Variant of ImageNet as an Alternative to CIFAR, 2017",
)
def imagenet32(source: Source) -> ImageSet:
    parts = [read_rows(file, "labels", classes=1000, first=1) for file in source.files]
    labels = np.concatenate([part[1] for part in parts])
    return ImageSet("imagenet32", Joined([part[0] for part in parts]), labels, tuple(map(str, range(1, 1001))))
