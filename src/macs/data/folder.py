"""A folder of images: which files it holds, and their pixels, decoded by threads (Pillow releases the GIL)."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.pictures import SUFFIXES, read_picture
from macs.data.pixels import Index, Pixels, positions

Progress = Callable[[int, int], None]  # images done, images in all

EAGER_BYTES = 512 * 2**20  # folders that decode to no more than this are decoded once and kept
BLOCK = 32  # images a thread takes at a time


def images_under(folder: Path) -> list[str]:
    """Names of the images below a folder, relative to it and sorted; hidden files and folders are left out."""
    if not folder.is_dir():
        raise MacsError(f"There is no folder {folder}; check the path.")
    names = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = Path(parent).relative_to(folder)
        names += [(inner / f).as_posix() for f in files if f[0] != "." and Path(f).suffix.lower() in SUFFIXES]
    if not names:
        raise MacsError(f"The folder {folder} holds no images ({', '.join(SUFFIXES)}); check the path.")
    return sorted(names)


def labels_by_folder(names: Sequence[str]) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Labels and class names from the first folder of each name, or none where an image lies outside any folder."""
    folders = [name.split("/", 1)[0] if "/" in name else "" for name in names]
    if "" in folders:
        return None, ()
    classes, labels = np.unique(folders, return_inverse=True)
    return labels.astype(np.int64), tuple(classes.tolist())


def decode(root: Path, names: Sequence[str], size: int, progress: Progress | None = None) -> NDArray[np.uint8]:
    """The images of the named files, len(names) x size x size x 3."""
    images = np.empty((len(names), size, size, 3), np.uint8)

    def fill(start: int) -> int:
        stop = min(start + BLOCK, len(names))
        for i in range(start, stop):
            images[i] = read_picture(root / names[i], size)
        return stop

    # A pool of its own for each call: threads kept from one call to the next would not survive a fork.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for done in pool.map(fill, range(0, len(names), BLOCK)):
            if progress:
                progress(done, len(names))
    return images


class FolderPixels:
    """Images decoded from their files every time they are asked for: for sets too large for memory."""

    def __init__(self, root: Path, names: Sequence[str], size: int) -> None:
        self.root, self.names, self.size = root, tuple(names), size

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names), self.size, self.size, 3)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        return decode(self.root, [self.names[i] for i in positions(index, len(self))], self.size)


def folder_pixels(root: Path, names: Sequence[str], size: int, progress: Progress | None = None) -> Pixels:
    """Decoded at once where that fits easily into memory, otherwise as they are asked for."""
    lazy = FolderPixels(root, names, size)
    return decode(root, names, size, progress) if np.prod(lazy.shape) <= EAGER_BYTES else lazy
