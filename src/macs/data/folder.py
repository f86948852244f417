"""A folder of images: its files, and their pixels, decoded by threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.ahead import DECODERS, map_ahead
from macs.data.pictures import SUFFIXES, open_rgb
from macs.data.pixels import Index, positions
from macs.data.preparation import Preparation
from macs.data.walking import folders_in, printable_name, walk

if TYPE_CHECKING:
    from PIL import Image

Progress = Callable[[int, int], None]  # images done, images in all

EAGER_BYTES = 512 * 2**20  # folders that decode to no more than this are decoded once and kept
BLOCK = 32  # images that a thread decodes at a time


def images_under(folder: Path) -> list[str]:
    """Paths of the images below a folder, relative to it, all sorted together."""
    names = []
    for path, trouble in walk(folder):
        if trouble:
            raise MacsError(f"{trouble.rstrip('.')}; make it readable, or move it away.")
        names.append(path.relative_to(folder).as_posix())
    if not names:
        raise MacsError(f"The folder {folder} holds no images ({', '.join(SUFFIXES)}); check the path.")
    return sorted(names)


def labels_by_folder(folder: Path, names: Sequence[str]) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Labels from the folders directly inside, one class per folder; None if no image lies in such a folder."""
    flat = [name for name in names if "/" not in name]
    if len(flat) == len(names):
        return None, ()
    if flat:
        raise MacsError(
            f"{folder / flat[0]} lies beside the class folders of {folder}, so its class is unknown; "
            "move it into one of them, or away."
        )
    label_of = {name: label for label, name in enumerate(folders_in(folder))}
    labels = np.array([label_of[name.split("/", 1)[0]] for name in names], np.int64)
    return labels, tuple(map(printable_name, label_of))


def decode(
    root: Path, names: Sequence[str], preparation: Preparation, progress: Progress | None = None
) -> NDArray[np.uint8]:
    """The images of the named files, len(names) x size x size x 3."""
    images = np.empty((len(names), preparation.size, preparation.size, 3), np.uint8)

    def fill(start: int) -> int:
        stop = min(start + BLOCK, len(names))
        for i in range(start, stop):
            images[i] = preparation.read(root / names[i])
        return stop

    for done in map_ahead(fill, range(0, len(names), BLOCK), threads=DECODERS, ahead=2 * DECODERS):
        if progress:
            progress(done, len(names))
    return images


class FolderPixels:
    """Images in files: decoded once and kept if they take little memory, otherwise decoded on each access.

    `picture` gives an original, for training transforms that crop from it.
    """

    def __init__(
        self, root: Path, names: Sequence[str], preparation: Preparation, progress: Progress | None = None
    ) -> None:
        self.root, self.names, self.preparation = root, tuple(names), preparation
        fits = np.prod(self.shape) <= EAGER_BYTES
        self.decoded = decode(root, names, preparation, progress) if fits else None

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.names), self.preparation.size, self.preparation.size, 3)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Index, /) -> NDArray[np.uint8]:
        if self.decoded is not None:
            return self.decoded[index]
        return decode(self.root, [self.names[i] for i in positions(index, len(self))], self.preparation)

    def picture(self, i: int) -> Image.Image:
        return open_rgb(self.root / self.names[i])
