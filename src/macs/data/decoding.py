"""Pictures of any source -> pixels, decoded by threads: at once if they take little memory, else as they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from macs.data.ahead import DECODERS, map_ahead
from macs.data.pictures import open_rgb
from macs.data.pixels import Index, positions
from macs.data.preparation import Preparation

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

Progress = Callable[[int, int], None]  # images done, images in all

EAGER_BYTES = 512 * 2**20  # pictures that decode to no more than this are decoded once and kept
BLOCK = 32  # images that a thread decodes at a time


class Pictures(Protocol):
    """Pictures by their number, from any thread; one that cannot be read raises a MacsError."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Image.Image: ...


class FilePictures:
    """Pictures in files, whose names are relative to a folder."""

    def __init__(self, root: Path, names: Sequence[str]) -> None:
        self.root, self.names = root, tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int, /) -> Image.Image:
        return open_rgb(self.root / self.names[i])


def decode(
    pictures: Pictures, index: Sequence[int], preparation: Preparation, progress: Progress | None = None
) -> NDArray[np.uint8]:
    """The pictures at `index`, len(index) x size x size x 3."""
    images = np.empty((len(index), preparation.size, preparation.size, 3), np.uint8)

    def fill(start: int) -> int:
        stop = min(start + BLOCK, len(index))
        for i in range(start, stop):
            images[i] = preparation(pictures[index[i]])
        return stop

    for done in map_ahead(fill, range(0, len(index), BLOCK), threads=DECODERS, ahead=2 * DECODERS):
        if progress:
            progress(done, len(index))
    return images


class PicturePixels:
    """Prepared pictures: decoded once and kept if they take little memory, otherwise decoded on each access.

    `picture` gives an original, for training transforms that crop from it.
    """

    def __init__(self, pictures: Pictures, preparation: Preparation, progress: Progress | None = None) -> None:
        self.pictures, self.preparation = pictures, preparation
        fits = np.prod(self.shape) <= EAGER_BYTES
        self.decoded = decode(pictures, range(len(pictures)), preparation, progress) if fits else None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.pictures), self.preparation.size, self.preparation.size, 3)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        if self.decoded is not None:
            return self.decoded[index]
        return decode(self.pictures, positions(index, len(self)).tolist(), self.preparation)

    def picture(self, i: int) -> Image.Image:
        return self.pictures[i]
