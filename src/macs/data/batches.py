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
from macs.data.imageset import ImageSet
from macs.data.prefetch import AHEAD, map_ahead
from macs.data.transforms import ALL, Augment, augmented

Positions = NDArray[np.int64]
# One random stream per purpose, so that no two share their numbers.
ORDER, DRAW, CROP_IN, CROP_OUT, POOL, MIX = range(6)


@dataclass(frozen=True)
class RawBatch:
    images: Tensor  # uint8, n x H x W x 3, augmented
    labels: Tensor  # int64, one per image of the whole batch
    outliers: Tensor  # uint8, m x H x W x 3, augmented; m is 0 without outliers
    outlier_count: int  # in the whole batch


def steps_per_epoch(images: int, batch_in: int, epoch_size: int = 0) -> int:
    """Full batches in an epoch of `epoch_size` images (0: all); a set that is smaller than a batch makes one batch."""
    return max(1, min(epoch_size or images, images) // batch_in)


def training_batches(
    train: ImageSet,
    outliers: ImageSet | None,
    batch_in: int,
    batch_out: int,
    *,
    epoch_size: int = 0,
    seed: int = 0,
    epoch: int = 0,
    balance: bool = False,
    augment: Augment = "auto",
    jitter: float = 0.0,
    part: slice = ALL,
) -> Iterator[RawBatch]:
    """One epoch of batches, or a part of each batch: the same images and crops as in the whole batch."""
    if augment not in get_args(Augment):
        raise unknown("augmentation", augment, list(get_args(Augment)))
    labels = labels_of(train)
    drawn = draws(train, outliers, batch_in, batch_out, epoch_size=epoch_size, seed=seed, epoch=epoch, balance=balance)

    def batch(step: int) -> RawBatch:
        index, index_out = drawn[step]
        images = augmented(train, index, augment, generator(seed, epoch, CROP_IN, step), jitter, part)
        extra = np.empty((0, *train.pixels.shape[1:]), np.uint8)
        if outliers is not None:
            extra = augmented(outliers, index_out, augment, generator(seed, epoch, CROP_OUT, step), jitter, part)
        return RawBatch(
            torch.from_numpy(images), torch.from_numpy(labels[index]), torch.from_numpy(extra), len(index_out)
        )

    return map_ahead(batch, range(len(drawn)), threads=1, ahead=AHEAD)


def draws(
    train: ImageSet,
    outliers: ImageSet | None,
    batch_in: int,
    batch_out: int,
    *,
    epoch_size: int = 0,
    seed: int = 0,
    epoch: int = 0,
    balance: bool = False,
) -> list[tuple[Positions, Positions]]:
    """The positions of the ID images and of the outliers in each step of an epoch.

    Each ID image comes at most once; with `balance`, each class comes equally often instead. Outliers are drawn afresh.
    """
    steps = steps_per_epoch(len(train), batch_in, epoch_size)
    count = min(epoch_size or len(train), len(train), steps * batch_in)
    random = generator(seed, epoch, ORDER)
    order = balanced(labels_of(train), count, random) if balance else random.permutation(len(train))[:count]
    order_out = np.empty(0, np.int64)
    if outliers is not None:
        order_out = draw(len(outliers), steps * batch_out, generator(seed, epoch, DRAW))
    return [(order[step * batch_in :][:batch_in], order_out[step * batch_out :][:batch_out]) for step in range(steps)]


def labels_of(train: ImageSet) -> NDArray[np.int64]:
    """Return the labels of training images; raise if there are none."""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels, so a classifier cannot learn from it; give labelled images.")
    return train.labels


def to_float(batch: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """uint8 N x H x W x 3 -> float32 N x 3 x H x W in [0, 1] on the device.

    uint8 is a quarter of the bytes to send to the device, and the permuted view is already in channels-last order.
    """
    return batch.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def balanced(labels: NDArray[np.int64], wanted: int, random: np.random.Generator) -> Positions:
    """Positions in random order, equally many per class; if that is impossible, random classes have one more."""
    classes = np.unique(labels)
    shares = np.full(len(classes), wanted // len(classes))
    shares[random.permutation(len(classes))[: wanted % len(classes)]] += 1
    members = (np.flatnonzero(labels == label) for label in classes)
    drawn = [own[draw(len(own), share, random)] for own, share in zip(members, shares, strict=True)]
    return random.permutation(np.concatenate(drawn))


def draw(available: int, wanted: int, random: np.random.Generator) -> Positions:
    """Positions drawn without replacement; once all have been drawn, they are shuffled and drawn again."""
    rounds = -(-wanted // available)
    return np.concatenate([random.permutation(available) for _ in range(max(1, rounds))])[:wanted]
