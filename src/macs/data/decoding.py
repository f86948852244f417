"""Pictures from any source -> pixels, decoded in threads: in advance if they take little memory, else on use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.ahead import DECODERS, map_ahead
from macs.data.pictures import open_rgb
from macs.data.pixels import Index, positions
from macs.data.preparation import Preparation

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

Progress = Callable[[int, int], None]  # images done, images in all
Broken = Literal["stop", "skip"]  # whether a picture that cannot be read is an error, or is reported and left out

EAGER_BYTES = 512 * 2**20  # pictures that decode to no more than this are decoded once and kept
SHOWN = 5  # broken pictures that a warning names
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
            images[i] = prepared(pictures, index[i], preparation)
        return stop

    for done in map_ahead(fill, range(0, len(index), BLOCK), threads=DECODERS.workers, ahead=2 * DECODERS.workers):
        if progress:
            progress(done, len(index))
    return images


def prepared(pictures: Pictures, i: int, preparation: Preparation) -> NDArray[np.uint8]:
    """One picture as the network wants it; a file may be decoded at a reduced size."""
    if isinstance(pictures, FilePictures):
        return preparation.read(pictures.root / pictures.names[i])
    return preparation(pictures[i])


def unreadable(pictures: Pictures, progress: Progress | None = None) -> dict[int, str]:
    """The reason for each picture that cannot be read, by its number; every picture is read."""

    def failures(start: int) -> dict[int, str]:
        reasons = {}
        for i in range(start, min(start + BLOCK, len(pictures))):
            try:
                pictures[i]
            except MacsError as error:
                reasons[i] = str(error)
        return reasons

    all_reasons: dict[int, str] = {}
    starts = range(0, len(pictures), BLOCK)
    blocks = map_ahead(failures, starts, threads=DECODERS.workers, ahead=2 * DECODERS.workers)
    for start, reasons in zip(starts, blocks, strict=True):
        all_reasons |= reasons
        if progress:
            progress(min(start + BLOCK, len(pictures)), len(pictures))
    return all_reasons


def readable_files(
    root: Path, names: Sequence[str], broken: Broken, where: object, progress: Progress | None
) -> Sequence[int]:
    """The numbers of the files to use: all of them, or with "skip" those that can be read."""
    if broken not in get_args(Broken):
        raise unknown("way to treat broken images", str(broken), list(get_args(Broken)))
    return range(len(names)) if broken == "stop" else readable(FilePictures(root, names), where, progress)


def readable(pictures: FilePictures, where: object, progress: Progress | None = None) -> list[int]:
    """The numbers of the pictures that can be read; one warning reports the others."""
    broken = unreadable(pictures, progress)
    if len(broken) == len(pictures):
        raise MacsError(f"None of the {len(pictures):,} images of {where} can be read: {next(iter(broken.values()))}")
    if broken:
        reasons = list(broken.values())[:SHOWN]
        more = [f"... and {len(broken) - SHOWN:,} more."] if len(broken) > SHOWN else []
        warn(f"{len(broken):,} of the {len(pictures):,} images of {where} are left out. {' '.join(reasons + more)}")
    return [i for i in range(len(pictures)) if i not in broken]


class PicturePixels:
    """Prepared pictures: decoded once and kept if they take little memory, otherwise decoded on each access.

    `picture` gives an original, for training transforms that crop from it; `prepared` prepares all originals anew.
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

    def prepared(self, preparation: Preparation) -> PicturePixels:
        return PicturePixels(self.pictures, preparation)
