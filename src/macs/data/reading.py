"""One pass over an image set: batches of raw pixels in order, read a little ahead of their use. Needs no torch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from macs.core.console import track
from macs.data.ahead import map_ahead
from macs.data.imageset import ImageSet

AHEAD = 2  # batches read in advance
BATCH = 256


def batches_of(
    images: ImageSet, batch: int = BATCH, *, doing: str = "scoring", progress: bool = False
) -> Iterator[NDArray[np.uint8]]:
    """All images, N x H x W x 3, with a progress bar that says what is done to them; the last batch may be short."""

    def read(step: int) -> NDArray[np.uint8]:
        # A copy, since a slice of a memory-mapped file is read-only and still on disk.
        return np.array(images.pixels[step * batch : (step + 1) * batch])

    steps = range(-(-len(images) // batch))
    return track(map_ahead(read, steps, threads=1, ahead=AHEAD), len(steps), f"{doing} {images.name}", progress)
