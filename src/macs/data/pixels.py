"""Sources of pixels: objects that return uint8 images, N x H x W x 3, for a slice or an index array.

A numpy array is one. The classes here wrap a file, pictures or another source and copy nothing until they are indexed.
A source of prepared images may still have the original pictures: `picture` returns one of them, `prepared` prepares
them anew. Pictures are decoded in threads: in advance if they take little memory, else on use.
"""

from __future__ import annotations

import mmap as mmap_module
from collections.abc import Callable, Sequence
from mmap import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.batches import DECODERS, map_ahead
from macs.data.preparation import Preparation, open_rgb

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

Index = slice | NDArray[np.integer]
MADV_DONTNEED: int | None = getattr(mmap_module, "MADV_DONTNEED", None)  # not on Windows


class Pixels(Protocol):
    @property
    def shape(self) -> tuple[int, ...]:
        """N, H, W, 3."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]: ...


def picture(pixels: Pixels, i: int) -> Image.Image:
    """Return the original of image i if its source still has it, otherwise its pixels as a picture."""
    from PIL import Image

    if hasattr(pixels, "picture"):
        original: Image.Image = pixels.picture(i)
        return original
    return Image.fromarray(pixels[i : i + 1][0])


def prepared(pixels: Pixels, preparation: Preparation) -> Pixels:
    """Return the images in another preparation, from the original pictures if their source still has them."""
    if hasattr(pixels, "prepared"):
        anew: Pixels = pixels.prepared(preparation)
        return anew
    return Resized(pixels, preparation) if preparation.changes(pixels.shape[1]) else pixels


def check_images(where: object, pixels: Pixels) -> None:
    """Refuse anything but an array of square RGB images; the error says what it is."""
    if not hasattr(pixels, "shape"):
        raise MacsError(f"{where} holds a {type(pixels).__name__}, but images must be an array N x size x size x 3.")
    shape, dtype = tuple(pixels.shape), getattr(pixels, "dtype", np.uint8)
    if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or shape[1] != shape[2]:
        what = f"{np.dtype(dtype)} of shape {' x '.join(map(str, shape)) or '()'}"
        raise MacsError(f"{where} holds {what}, but images must be uint8 of shape N x size x size x 3.")
    if 0 in shape:
        raise MacsError(f"{where} holds no images; check where it comes from.")


def positions(index: Index, length: int) -> NDArray[np.int64]:
    """Return a slice or an index array as non-negative positions; an IndexError beyond the end, as from numpy."""
    if isinstance(index, slice):
        return np.arange(*index.indices(length))
    wanted = np.asarray(index, dtype=np.int64)
    if wanted.size and (wanted.min() < -length or wanted.max() >= length):
        raise IndexError(f"index {wanted.max()} is out of bounds for {length} images")
    return np.where(wanted < 0, wanted + length, wanted)


class Mapped:
    """Images that stay in a memory-mapped file and are read as they are used.

    The pages of a read are released at once, so that a pass over a file of any size does not make the process grow;
    the system's own cache may still hold them.
    """

    def __init__(self, images: NDArray[np.uint8], mapping: mmap) -> None:
        self.images, self.mapping = images, mapping

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        return self.images.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.images.shape

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        images = np.array(self.images[index], order="C")
        if MADV_DONTNEED is not None:
            self.mapping.madvise(MADV_DONTNEED)
        return images

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[NDArray[np.uint8]]]:
        """To another process, perhaps on a machine without this file, the images travel as a plain array."""
        return np.asarray, (self[:],)


class Subset:
    """Some images of another source, in a given order."""

    source: Pixels
    index: NDArray[np.int64]

    def __init__(self, source: Pixels, index: NDArray[np.int64]) -> None:
        if isinstance(source, Subset):  # a subset of a subset is one subset
            self.source, self.index = source.source, source.index[index]
        else:
            self.source, self.index = source, index

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.index), *self.source.shape[1:])

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        return self.source[self.index[index]]

    def picture(self, i: int) -> Image.Image:
        return picture(self.source, int(self.index[i]))

    def prepared(self, preparation: Preparation) -> Pixels:
        return Subset(prepared(self.source, preparation), self.index)


class Joined:
    """Several sources one after the other: ImageNet-32 comes in ten files, and concatenating them would copy all."""

    def __init__(self, parts: Sequence[Pixels]) -> None:
        self.parts = tuple(parts)
        self.ends = np.cumsum([len(part) for part in parts])

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.parts[0].shape[1:])

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        wanted = positions(index, len(self))
        images = np.empty((len(wanted), *self.shape[1:]), np.uint8)
        part_of = np.searchsorted(self.ends, wanted, side="right")
        for number in np.unique(part_of):
            here = part_of == number
            start = self.ends[number] - len(self.parts[number])
            images[here] = self.parts[number][wanted[here] - start]
        return images

    def picture(self, i: int) -> Image.Image:
        number = int(np.searchsorted(self.ends, i, side="right"))
        return picture(self.parts[number], i - int(self.ends[number]) + len(self.parts[number]))

    def prepared(self, preparation: Preparation) -> Pixels:
        return Joined([prepared(part, preparation) for part in self.parts])


class Resized:
    """Images of another source, prepared as pictures from a folder are."""

    def __init__(self, source: Pixels, preparation: Preparation) -> None:
        self.source, self.preparation = source, preparation

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.source), self.preparation.size, self.preparation.size, 3)

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        from PIL import Image

        images = self.source[index]
        prepared = np.empty((len(images), *self.shape[1:]), np.uint8)
        for i, image in enumerate(images):
            prepared[i] = self.preparation(Image.fromarray(image))
        return prepared

    def picture(self, i: int) -> Image.Image:
        return picture(self.source, i)

    def prepared(self, preparation: Preparation) -> Pixels:
        return prepared(self.source, preparation)


Progress = Callable[[int, int], None]  # images done, images in all
OnBroken = Literal["stop", "skip"]  # whether a picture that cannot be read is an error, or is reported and left out

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
    """Return the pictures at `index`, len(index) x size x size x 3."""
    images = np.empty((len(index), preparation.size, preparation.size, 3), np.uint8)

    def fill(start: int) -> int:
        stop = min(start + BLOCK, len(index))
        for i in range(start, stop):
            images[i] = prepared_picture(pictures, index[i], preparation)
        return stop

    for done in map_ahead(fill, range(0, len(index), BLOCK), threads=DECODERS.workers, ahead=2 * DECODERS.workers):
        if progress:
            progress(done, len(index))
    return images


def prepared_picture(pictures: Pictures, i: int, preparation: Preparation) -> NDArray[np.uint8]:
    """Return one picture as the network wants it; a file may be decoded at a reduced size."""
    if isinstance(pictures, FilePictures):
        return preparation.read(pictures.root / pictures.names[i])
    return preparation(pictures[i])


def unreadable(pictures: Pictures, progress: Progress | None = None) -> dict[int, str]:
    """Return the reason for each picture that cannot be read, by its number; every picture is read."""

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
    root: Path, names: Sequence[str], broken: OnBroken, where: object, progress: Progress | None
) -> Sequence[int]:
    """Return the numbers of the files to use: all of them, or with "skip" those that can be read."""
    if broken not in get_args(OnBroken):
        raise unknown("way to treat broken images", str(broken), list(get_args(OnBroken)))
    return range(len(names)) if broken == "stop" else readable(FilePictures(root, names), where, progress)


def readable(pictures: FilePictures, where: object, progress: Progress | None = None) -> list[int]:
    """Return the numbers of the pictures that can be read; one warning reports the others."""
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
