"""ImageSet: uint8 images with, perhaps, labels and class names. Everything that reads images gives one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.data.folder import Progress, folder_pixels, images_under, labels_by_folder
from macs.data.pixels import Chosen, Pixels, Resized, check_images


@dataclass(frozen=True, eq=False)  # arrays do not compare to a yes or a no
class ImageSet:
    name: str
    pixels: Pixels  # uint8, N x size x size x 3
    labels: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    mirror: bool = True  # False where a mirror image means something else, as it does for digits
    files: tuple[str, ...] = ()  # where each image came from, if each came from a file

    def __post_init__(self) -> None:
        check_images(self.name, self.pixels)
        for what, given in (("labels", self.labels), ("file names", self.files or None)):
            if given is not None and len(given) != len(self):
                raise MacsError(f"{self.name} has {len(self)} images but {len(given)} {what}; give one for each image.")
        if self.labels is not None and not (self.labels.min() >= 0 and self.labels.max() < len(self.classes)):
            found = f"{self.labels.min()} to {self.labels.max()}"
            raise MacsError(f"{self.name} has labels {found} for {len(self.classes)} classes; count labels from 0.")

    @classmethod
    def from_array(
        cls,
        array: NDArray[np.uint8],
        labels: ArrayLike | None = None,
        classes: Sequence[str] = (),
        name: str = "array",
        mirror: bool = True,
    ) -> ImageSet:
        """Images that are in memory already; without class names, the labels' numbers serve as such."""
        if labels is None:
            return cls(name, array, None, tuple(classes), mirror)
        numbers = np.asarray(labels)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise MacsError(f"The labels of {name} are {numbers.dtype} of shape {numbers.shape}; give N whole numbers.")
        numbers = numbers.astype(np.int64)
        return cls(name, array, numbers, tuple(classes or map(str, range(numbers.max(initial=-1) + 1))), mirror)

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        size: int = 32,
        *,
        name: str = "",
        labelled: bool = True,
        mirror: bool = True,
        progress: Progress | None = None,
    ) -> ImageSet:
        """Every image below a folder, in sorted order: shorter side resized to `size`, centre cropped.

        The folders directly inside it name the classes, as for torchvision's ImageFolder; images that lie flat have
        no labels. Small folders are decoded at once, larger ones as they are used.
        """
        folder = Path(path).expanduser()
        names = images_under(folder)
        labels, classes = labels_by_folder(names) if labelled else (None, ())
        pixels = folder_pixels(folder, names, size, progress)
        return cls(name or folder.resolve().name, pixels, labels, classes, mirror, tuple(names))

    @classmethod
    def from_files(cls, paths: Sequence[str | Path], size: int = 32, *, name: str = "images") -> ImageSet:
        """The images in the given files, in the given order, without labels."""
        names = [str(Path(path).expanduser()) for path in paths]
        return cls(name, folder_pixels(Path(), names, size), files=tuple(names))

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def size(self) -> int:
        """Width and height of every image."""
        return self.pixels.shape[1]

    def name_of(self, i: int) -> str:
        """What to call image i in a message or a table: its file, or its place in the set."""
        return self.files[i] if self.files else f"{self.name}[{range(len(self))[i]}]"

    def subset(self, indices: ArrayLike) -> ImageSet:
        """The chosen images, in the given order (positions or a mask); no pixel is copied."""
        chosen = np.arange(len(self))[np.asarray(indices)]
        return replace(
            self,
            pixels=Chosen(self.pixels, chosen),
            labels=None if self.labels is None else self.labels[chosen],
            files=tuple(self.files[i] for i in chosen) if self.files else (),
        )

    def split(self, first: float | int, seed: int = 0) -> tuple[ImageSet, ImageSet]:
        """Two sets drawn at random without overlap; `first` is the number of images in the first one, or its share."""
        count = round(first * len(self)) if isinstance(first, float) else first
        if not 0 < count < len(self):
            raise MacsError(f"Cannot split {first} off the {len(self)} images of {self.name}: one part would be empty.")
        order = np.random.default_rng(seed).permutation(len(self))
        return self.subset(np.sort(order[:count])), self.subset(np.sort(order[count:]))

    def resized(self, size: int) -> ImageSet:
        """The same images at another size, resized as they are read."""
        return self if size == self.size else replace(self, pixels=Resized(self.pixels, size))
