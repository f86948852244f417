"""ImageNet-1k reduced to 32 x 32: ten pickled training batches and the validation set, which serves as the test set.

The files do not name the 1,000 classes but number them from 1, in an order of their own; so do we.
"""

import numpy as np

from macs.data.catalog import Remote, Source, Split, dataset, under
from macs.data.imageset import ImageSet
from macs.data.pixels import Joined
from macs.data.readers import map_rows

BATCHES = [f"train_data_batch_{i}" for i in range(1, 11)]
FOLDERS = "imagenet32 Imagenet32 Imagenet32_{0} Imagenet32/Imagenet32_{0}"
TRAIN, VAL = (
    Remote(f"https://image-net.org/data/downsample/Imagenet32_{part}.zip", "Imagenet32") for part in ("train", "val")
)
BY_HAND = """\
1. Register at https://image-net.org/download-images.php, agree to its terms and log in.
2. On that page, under the downsampled images, take Train (32x32), which is Imagenet32_train.zip,
   and Val (32x32), which is Imagenet32_val.zip.
3. Put both into one folder, say FOLDER, and run: macs data get imagenet32 --mirror file:///path/to/FOLDER
   Or unpack them yourself, so that train_data_batch_1 to train_data_batch_10 and val_data lie in {root}/imagenet32."""


@dataset(
    "imagenet32",
    title="Downsampled ImageNet, 32 x 32",
    role="id",
    splits={
        "train": Split(1_281_167, under(FOLDERS.format("train"), *BATCHES), TRAIN, parts=10),
        "test": Split(50_000, under(FOLDERS.format("val"), "val_data"), VAL),
    },
    home="https://image-net.org/download-images.php",
    licence="ImageNet terms of access: non-commercial research and education",
    citation="Chrabaszcz, Loshchilov, Hutter: A Downsampled Variant of ImageNet as an Alternative to CIFAR, 2017",
    by_hand=BY_HAND,
)
def imagenet32(source: Source) -> ImageSet:
    parts = [map_rows(file, "labels", classes=1000, first=1) for file in source.files]
    labels = np.concatenate([part[1] for part in parts])
    return ImageSet("imagenet32", Joined([part[0] for part in parts]), labels, tuple(map(str, range(1, 1001))))
