"""Image sets -> batches of tensors. The seed, the epoch and the step alone decide every draw and every crop.

A background thread prepares the next batches while the network works on this one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.ahead import map_ahead
from macs.data.imageset import ImageSet
from macs.data.reading import AHEAD
from macs.data.transforms import Augment, augmented

ORDER, DRAW, CROP_IN, CROP_OUT = range(4)  # one random stream per purpose, so that no two share their numbers


@dataclass(frozen=True)
class RawBatch:
    images: Tensor  # uint8, n x H x W x 3, augmented
    labels: Tensor  # int64, n
    outliers: Tensor  # uint8, m x H x W x 3, augmented; m is 0 without outliers


def steps_per_epoch(train: ImageSet, batch_in: int, epoch_size: int = 0) -> int:
    """Full batches in an epoch of `epoch_size` images (0: all); a set that is smaller than a batch makes one batch."""
    return max(1, min(epoch_size or len(train), len(train)) // batch_in)


def training_batches(
    train: ImageSet,
    outliers: ImageSet | None,
    batch_in: int,
    batch_out: int,
    *,
    epoch_size: int = 0,
    seed: int = 0,
    epoch: int = 0,
    augment: Augment = "auto",
    jitter: float = 0.0,
) -> Iterator[RawBatch]:
    """One epoch: each ID image at most once, paired with a fresh draw of outliers."""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels, so a classifier cannot learn from it; give labelled images.")
    if augment not in get_args(Augment):
        raise unknown("augmentation", augment, list(get_args(Augment)))
    labels = train.labels
    steps = steps_per_epoch(train, batch_in, epoch_size)
    order = generator(seed, epoch, ORDER).permutation(len(train))[: epoch_size or None]
    drawn = draw(len(outliers), steps * batch_out, generator(seed, epoch, DRAW)) if outliers is not None else None

    def batch(step: int) -> RawBatch:
        index = order[step * batch_in : (step + 1) * batch_in]
        images = augmented(train, index, augment, generator(seed, epoch, CROP_IN, step), jitter)
        extra = np.empty((0, *train.pixels.shape[1:]), np.uint8)
        if outliers is not None and drawn is not None:
            index_out = drawn[step * batch_out : (step + 1) * batch_out]
            extra = augmented(outliers, index_out, augment, generator(seed, epoch, CROP_OUT, step), jitter)
        return RawBatch(torch.from_numpy(images), torch.from_numpy(labels[index]), torch.from_numpy(extra))

    return map_ahead(batch, range(steps), threads=1, ahead=AHEAD)


def to_float(batch: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """uint8 N x H x W x 3 -> float32 N x 3 x H x W in [0, 1] on the device.

    uint8 is a quarter of the bytes to send to the device, and the permuted view is already in channels-last order.
    """
    return batch.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def draw(available: int, wanted: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Positions drawn without replacement; once all have been drawn, they are shuffled and drawn again."""
    rounds = -(-wanted // available)
    return np.concatenate([random.permutation(available) for _ in range(max(1, rounds))])[:wanted]
