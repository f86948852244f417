"""Training on the features of a frozen backbone: the same weights as on pixels, and each image passes only once."""

import threading
from collections.abc import Generator, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from macs import methods
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.methods import Batch, Method, Step
from macs.training.recipe import Recipe
from macs.training.training_batches import (
    RawBatch,
    draw,
    draws,
    features_suffice,
    steps_per_epoch,
    training_batches,
)
from official import images
from short_training import SHORT, TwoLayers

HEAD = replace(SHORT, freeze="backbone", lr=0.1)


def test_features_do_where_nothing_before_the_last_layer_changes() -> None:
    class Scaled(TwoLayers):
        def forward(self, pixels: Tensor) -> Tensor:
            return 2 * super().forward(pixels)

    macs_method = methods.build("macs")
    assert features_suffice(TwoLayers(), macs_method, HEAD, (3, 16, 16))
    assert features_suffice(TwoLayers(), macs_method, replace(HEAD, augment="none"), (3, 16, 16))
    assert not features_suffice(TwoLayers(), macs_method, replace(HEAD, augment="crop-flip"), (3, 16, 16))
    assert not features_suffice(TwoLayers(), macs_method, replace(HEAD, freeze="layers.1", augment="none"), (3, 16, 16))
    assert not features_suffice(Scaled(), macs_method, HEAD, (3, 16, 16))
    for name in methods.available():
        assert features_suffice(TwoLayers(), methods.build(name), HEAD, (3, 16, 16)) == (name not in ("mixoe", "divoe"))
    assert not features_suffice(TwoLayers(), Stepping(), HEAD, (3, 16, 16))
    assert features_suffice(TwoLayers(), Harmless(), HEAD, (3, 16, 16))


class Stepping(Method):
    """A method of the user's own that does not say what it does to the pixels."""

    def step(self, net: nn.Module, batch: Batch) -> Step:
        return super().step(net, batch)


class Harmless(Stepping):
    changes_pixels = False

    def step(self, net: nn.Module, batch: Batch) -> Step:
        return super().step(net, batch)


def numbered(count: int, size: int = 8, mirror: bool = True, labelled: bool = True) -> ImageSet:
    """Image i has i as its label and, in two bytes, in every pixel."""
    number = np.arange(count)
    pixels = np.stack([number % 256, number // 256, np.full(count, 255)], axis=-1).astype(np.uint8)
    pixels = np.broadcast_to(pixels[:, None, None], (count, size, size, 3)).copy()
    classes = tuple(map(str, range(count)))
    return ImageSet("numbered", pixels, number if labelled else None, classes if labelled else (), mirror)


def numbers(batch: Tensor) -> list[int]:
    return (batch[:, 0, 0, 0].long() + 256 * batch[:, 0, 0, 1].long()).tolist()


def labels(batches: Iterable[RawBatch]) -> list[int]:
    return [label for batch in batches for label in batch.labels.tolist()]


def epoch(
    train: ImageSet, outliers: ImageSet | None = None, batch_in: int = 4, number: int = 0, **options: Any
) -> list[RawBatch]:
    recipe = Recipe(batch_in=batch_in, **{"batch_out": 0, "augment": "none", **options})
    return list(training_batches(train, outliers, recipe, number))


def test_an_epoch_is_a_permutation_that_the_seed_and_the_epoch_decide() -> None:
    orders = {}
    for seed in (0, 1):
        for number in (0, 1):
            batches = epoch(numbered(20), seed=seed, number=number)
            assert [len(batch.images) for batch in batches] == [4] * 5
            for batch in batches:
                assert numbers(batch.images) == batch.labels.tolist()
            orders[seed, number] = labels(batches)
            assert sorted(orders[seed, number]) == list(range(20))
    assert len({tuple(order) for order in orders.values()}) == 4


@pytest.mark.parametrize(
    ("count", "batch_in", "epoch_size", "lengths"),
    [
        (20, 4, 0, [4] * 5),
        (22, 4, 0, [4] * 5),  # the short batch at the end is left out
        (3, 4, 0, [3]),  # unless it is the only one
        (20, 4, 9, [4, 4]),
        (20, 8, 5, [5]),
        (20, 4, 100, [4] * 5),
    ],
)
def test_steps_and_lengths(count: int, batch_in: int, epoch_size: int, lengths: list[int]) -> None:
    train = numbered(count)
    batches = epoch(train, batch_in=batch_in, epoch_size=epoch_size)
    assert [len(batch.images) for batch in batches] == [len(batch.labels) for batch in batches] == lengths
    assert steps_per_epoch(len(train), batch_in, epoch_size) == len(lengths)
    assert epoch_size or steps_per_epoch(len(train), batch_in) == len(lengths)
    seen = labels(batches)
    assert len(set(seen)) == len(seen)


def test_a_short_epoch_sees_other_images_in_the_next_one() -> None:
    first, second = (epoch(numbered(100), epoch_size=8, number=number) for number in (0, 1))
    assert set(labels(first)) != set(labels(second))


def uneven(*counts: int) -> ImageSet:
    """So many images of each class, numbered; a class may have none."""
    train = numbered(sum(counts))
    return ImageSet("uneven", train.pixels, np.repeat(np.arange(len(counts)), counts), tuple(map(str, counts)))


@pytest.mark.parametrize(
    ("counts", "batch_in", "epoch_size", "drawn"),
    [
        ((90, 9, 1), 10, 0, [33, 33, 34]),
        ((90, 9, 1), 10, 60, [20, 20, 20]),
        ((5, 0, 1), 4, 0, [2, 2]),  # a class without images is no class here
        ((2, 1), 8, 0, [1, 2]),  # fewer images than a batch
        ((30, 2), 8, 6, [3, 3]),
    ],
)
def test_balanced_epochs_draw_every_class_equally_often(
    counts: tuple[int, ...], batch_in: int, epoch_size: int, drawn: list[int]
) -> None:
    train = uneven(*counts)
    orders = []
    for key in ((0, 0), (0, 0), (0, 1), (1, 0)):
        batches = epoch(train, batch_in=batch_in, epoch_size=epoch_size, seed=key[0], number=key[1], balance=True)
        assert len(batches) == steps_per_epoch(len(train), batch_in, epoch_size)
        found = np.array([number for batch in batches for number in numbers(batch.images)])
        assert labels(batches) == train.labels[found].tolist()
        assert sorted(np.unique(labels(batches), return_counts=True)[1]) == drawn
        for each in np.unique(train.labels):  # every image of a class before any comes again
            times = np.bincount(found[train.labels[found] == each], minlength=len(train))[train.labels == each]
            assert times.max() - times.min() <= 1
        orders.append(found.tolist())
    assert orders[0] == orders[1]
    assert len(train) < 50 or len({tuple(order) for order in orders}) == 3


def test_outliers_are_drawn_afresh_and_without_replacement() -> None:
    drawn = []
    for number in range(3):
        batches = epoch(numbered(20), numbered(300, labelled=False), batch_out=7, number=number)
        assert [len(batch.outliers) for batch in batches] == [7] * 5
        drawn.append([n for batch in batches for n in numbers(batch.outliers)])
        assert len(set(drawn[-1])) == 35
    assert len({tuple(sorted(once)) for once in drawn}) == 3


def test_too_few_outliers_are_all_used_before_any_is_used_again() -> None:
    batches = epoch(numbered(20), numbered(10, labelled=False), batch_out=7)
    drawn = [n for batch in batches for n in numbers(batch.outliers)]
    assert len(drawn) == 35
    for start in (0, 10, 20):
        assert sorted(drawn[start : start + 10]) == list(range(10))
    assert drawn[:10] != drawn[10:20]


def test_a_draw_of_fewer_than_all_shuffles_once() -> None:
    random, same = np.random.default_rng(0), np.random.default_rng(0)
    assert draw(9, 4, random).tolist() == same.permutation(9)[:4].tolist()
    assert random.random() == same.random()
    assert draw(9, 0, random).tolist() == []


def test_every_outlier_is_equally_likely() -> None:
    hits = np.zeros(40)
    for seed in range(500):
        hits[draw(40, 10, np.random.default_rng(seed))] += 1
    assert hits.sum() == 5000 and abs(hits - 125).max() < 5 * np.sqrt(125)


def test_the_order_of_id_images_does_not_depend_on_the_outliers() -> None:
    alone = epoch(numbered(20), augment="crop-flip", seed=5)
    paired = epoch(numbered(20), numbered(9, labelled=False), batch_out=3, augment="crop-flip", seed=5)
    for one, other in zip(alone, paired, strict=True):
        assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)
    assert alone[0].outliers.shape == (0, 8, 8, 3)


def test_without_outliers_a_batch_counts_none_however_many_were_asked_for() -> None:
    assert [batch.outlier_count for batch in epoch(numbered(8), batch_out=3)] == [0, 0]


def test_an_epoch_is_the_first_unless_another_is_asked_for() -> None:
    train, outliers, recipe = uneven(20, 3), numbered(9, labelled=False), Recipe(batch_in=4, batch_out=3)
    for one, other in zip(draws(train, outliers, recipe), draws(train, outliers, recipe, 0), strict=True):
        assert one[0].tolist() == other[0].tolist() and one[1].tolist() == other[1].tolist()
    told = training_batches(train, outliers, recipe, 0)
    for batch, expected in zip(training_batches(train, outliers, recipe), told, strict=True):
        assert torch.equal(batch.images, expected.images) and torch.equal(batch.outliers, expected.outliers)


def test_the_same_seed_gives_the_same_bytes() -> None:
    train, outliers = ImageSet.from_array(images(30), np.arange(30)), ImageSet.from_array(images(50, 1))
    for one, other in zip(
        *(epoch(train, outliers, 8, batch_out=6, augment="auto", seed=3) for _ in range(2)), strict=True
    ):
        assert torch.equal(one.images, other.images) and torch.equal(one.outliers, other.outliers)
        assert one.images.dtype == torch.uint8 and one.labels.dtype == torch.int64


def test_training_needs_labels() -> None:
    with pytest.raises(MacsError, match="no labels"):
        training_batches(numbered(4, labelled=False), None, Recipe())


def preparing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_closing_early_ends_the_thread() -> None:
    batches = training_batches(numbered(1000), None, Recipe(batch_in=4))
    next(batches)
    assert preparing()
    assert isinstance(batches, Generator)
    batches.close()
    assert not preparing()
