"""One pass over an image set in batches; reading and decoding in threads, ahead of use. Needs no torch to import."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.console import track
from macs.core.settings import Span, typed

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from macs.data.imageset import ImageSet  # which imports this file

S = TypeVar("S")
T = TypeVar("T")


@dataclass
class Decoders:
    """The number of threads that decode pictures, for the whole process.

    Pillow releases the GIL while it decodes and resizes, so processes would be no faster (docs/performance.md).
    """

    workers: int = min(8, os.cpu_count() or 1)


DECODERS = Decoders()


def set_workers(count: int | None) -> None:
    """Decode pictures in this many threads from now on; None: one per core, at most 8. The pixels stay the same."""
    DECODERS.workers = Decoders.workers if count is None else typed("workers", count, Annotated[int, Span(1, 256)])


def map_ahead(function: Callable[[S], T], items: Iterable[S], threads: int, ahead: int) -> Iterator[T]:
    """map(function, items) in threads, in order, with up to `ahead` results computed in advance.

    An exception in a thread is raised here, in its turn. Closing the iterator ends the threads. Every call has its own
    pool: threads that are kept from one call to the next would not survive a fork.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")
    pending: deque[Future[T]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def in_threads(function: Callable[[S], object], items: Iterable[S]) -> None:
    """Call function(item) for each item, in the threads that decode pictures."""
    with ThreadPoolExecutor(DECODERS.workers, thread_name_prefix="ahead") as pool:
        for _ in pool.map(function, items):  # raises what a call has raised
            pass


AHEAD = 2  # batches read in advance
BATCH = 256  # images, if they are small
PIXELS = 2**21  # in a batch of larger ones: a network's activations at 224 x 224 take about 50 times the memory at 32


def batch_at(size: int) -> int:
    """Images of size x size pixels in a batch: 256 up to 90 pixels, 41 at 224."""
    return max(1, min(BATCH, PIXELS // size**2))


def batches_of(
    images: ImageSet, batch: int | None = None, *, doing: str = "scoring", progress: bool = False
) -> Iterator[NDArray[np.uint8]]:
    """All images, N x H x W x 3, with progress that says what is done to them; the last batch may be short."""
    count = batch or (batch_at(images.size) if len(images.input_shape) == 3 else BATCH)

    def read(step: int) -> NDArray[np.uint8]:
        # A copy, since a slice of a memory-mapped file is read-only and still on disk.
        return np.array(images.pixels[step * count : (step + 1) * count])

    steps = range(-(-len(images) // count))
    return track(map_ahead(read, steps, threads=1, ahead=AHEAD), len(images), f"{doing} {images.name}", progress)


def to_float(batch: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """uint8 N x H x W x 3 -> float32 N x 3 x H x W in [0, 1] on the device; features N x D stay as they are.

    uint8 is a quarter of the bytes to send to the device, and the permuted view is already in channels-last order.
    """
    if batch.is_floating_point():
        return batch.to(device, non_blocking=True)
    return batch.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
