"""Batches of a set, and map_ahead: in order, as far ahead as was said and no further, and no thread is left behind."""

import os
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from macs.core.errors import MacsError
from macs.data import ImageSet, set_workers
from macs.data.batches import DECODERS, batch_at, batches_of, in_threads, map_ahead, to_float
from official import images


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


@pytest.mark.parametrize(("count", "ahead"), [(1, 2), (4, 16), (8, 1)])
def test_results_come_in_order_and_stay_so_many_ahead(count: int, ahead: int) -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for i in range(10 * ahead):
            taken += 1
            yield i

    def slow(i: int) -> int:
        time.sleep(0.002 * (i % 3))  # so that a later one is ready before an earlier one
        return i * i

    results = map_ahead(slow, source(), count, ahead)
    for i in range(3 * ahead):
        assert next(results) == i * i
        assert taken == i + 1 + ahead
        assert len(threads()) <= count
    assert list(results) == [i * i for i in range(3 * ahead, 10 * ahead)]
    assert not threads()


def test_results_are_made_while_the_one_before_is_used() -> None:
    made = []
    seen = []

    def make(number: int) -> int:
        made.append(number)
        return number

    for number in map_ahead(make, range(6), threads=1, ahead=2):
        seen.append(number)
        deadline = time.monotonic() + 5
        while len(made) < min(6, number + 3) and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.005)
        assert made == list(range(min(6, number + 3)))
    assert seen == list(range(6)) and not threads()
    assert list(map_ahead(str, [], 1, 2)) == [] and list(map_ahead(str, [0], 1, 2)) == ["0"]


def test_an_exception_in_a_thread_reaches_the_caller_at_its_place() -> None:
    def make(number: int) -> int:
        if number == 3:
            raise MacsError("the fourth image is broken")
        return number

    seen: list[int] = []
    with pytest.raises(MacsError, match="the fourth image is broken"):
        seen.extend(map_ahead(make, range(10), threads=2, ahead=4))
    assert seen == [0, 1, 2] and not threads()


def test_closing_early_ends_the_threads() -> None:
    results = map_ahead(str, range(1000), threads=3, ahead=8)
    next(results)
    assert threads()
    assert isinstance(results, Generator)
    results.close()
    assert not threads()


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_workers_is_the_number_of_threads(count: int) -> None:
    """Every call waits until all threads have one; a thread more or less would break the barrier."""
    together = threading.Barrier(count)
    set_workers(count)
    try:
        in_threads(lambda _: together.wait(timeout=20), range(4 * count))
        assert not threads()
    finally:
        set_workers(None)
    assert DECODERS.workers == min(8, os.cpu_count() or 1)


def test_what_a_thread_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda number: 1 // number, [2, 1, 0, 1])


@pytest.mark.parametrize("count", [0, -1, 257, 2.5, "two", 10**30])
def test_a_wrong_number_of_workers_is_refused(count: Any) -> None:
    with pytest.raises(MacsError, match="^workers must be"):
        set_workers(count)


def numbered(count: int) -> ImageSet:
    """Image i has i in every pixel."""
    pixels = np.full((count, 8, 8, 3), (np.arange(count) % 256)[:, None, None, None], np.uint8)
    return ImageSet.from_array(pixels)


def test_scoring_goes_through_every_image_in_order(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", numbered(23).pixels[:])
    on_disk = ImageSet("disk", np.load(tmp_path / "a.npy", mmap_mode="r"))
    for photos in (numbered(23), on_disk, numbered(46).subset(range(23))):
        batches = list(batches_of(photos, batch=10))
        assert [len(batch) for batch in batches] == [10, 10, 3]
        assert [n for batch in batches for n in batch[:, 0, 0, 0].tolist()] == list(range(23))


def test_to_float_scales_to_one_and_lies_channels_last() -> None:
    pixels = images(5, size=6)
    batch = to_float(torch.from_numpy(pixels), "cpu")
    assert batch.shape == (5, 3, 6, 6) and batch.dtype == torch.float32
    assert batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(batch.numpy(), pixels.transpose(0, 3, 1, 2) / 255, rtol=1e-6)
    assert (batch.min().item(), batch.max().item()) == (0, 1)
    assert pixels.max() == 255  # the source is left alone


def test_leaving_a_loop_early_ends_the_thread() -> None:
    for _ in batches_of(numbered(1000), 4):
        break
    deadline = time.monotonic() + 5
    while threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not threads()


def test_batches_of_larger_images_hold_fewer_of_them() -> None:
    assert [batch_at(size) for size in (1, 32, 90, 224, 1024)] == [256, 256, 256, 41, 2]
    pixels = np.zeros((100, 224, 224, 3), np.uint8)
    pixels[:, 0, 0, 0] = np.arange(100)
    batches = list(batches_of(ImageSet.from_array(pixels)))
    assert [len(batch) for batch in batches] == [41, 41, 18]
    np.testing.assert_array_equal(np.concatenate(batches)[:, 0, 0, 0], np.arange(100))
