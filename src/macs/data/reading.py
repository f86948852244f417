"""One pass over an image set: batches of raw pixels in order, read a little ahead of their use. Needs no torch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from macs.core.console import track
from macs.data.ahead import map_ahead
from macs.data.imageset import ImageSet

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
    count = batch_at(images.size) if batch is None else batch

    def read(step: int) -> NDArray[np.uint8]:
        # A copy, since a slice of a memory-mapped file is read-only and still on disk.
        return np.array(images.pixels[step * count : (step + 1) * count])

    steps = range(-(-len(images) // count))
    return track(map_ahead(read, steps, threads=1, ahead=AHEAD), len(images), f"{doing} {images.name}", progress)
