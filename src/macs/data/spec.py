"""DataSpec: which images a set holds and where they come from, so that any machine can load the set again.

A fingerprint, a short hash, identifies a set by its images, whatever its name.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from macs.core import settings
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.data.imageset import ImageSet
    from macs.data.pixels import Progress
    from macs.data.preparation import Preparation

MEMORY = "memory"  # the source of images that cannot be loaded from anywhere


@dataclass(frozen=True)
class Part:
    """Some images of a set: one side of `ImageSet.split(count, seed)`, or those of `ImageSet.subset(positions)`."""

    side: Literal["first", "rest", "chosen"]
    count: int  # images on the first side of the split, or in the subset
    seed: int = 0  # of the split
    positions: str = ""  # hash of the subset's positions

    def __post_init__(self) -> None:
        settings.check(self)


@dataclass(frozen=True)
class DataSpec:
    """Where images come from; it survives a round trip through JSON, and its fingerprint identifies the images."""

    source: str  # a name in the catalogue, hf/... for Hugging Face, a path as the user wrote it, or MEMORY
    split: str = ""  # empty if the source has no splits
    base: str = ""  # the folder that the paths of an image list start from, if the user named one
    parts: tuple[Part, ...] = ()  # successive draws from the split; none: all of it
    labelled: bool = True  # False if the folders inside a folder are not classes
    broken: Literal["stop", "skip"] = "stop"  # skip: files that could not be read were left out
    mirror: bool = True  # whether the images may be flipped
    images: int = 0
    whole: int = 0  # images of the whole split
    fingerprint: str = ""

    def __post_init__(self) -> None:
        settings.check(self)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> DataSpec:
        """Return the inverse of `as_dict`, also by way of JSON or TOML."""
        return settings.from_dict(cls, values)

    def __str__(self) -> str:
        return f"{self.source}{self.note(self.images)}"

    def note(self, images: int) -> str:
        """Return the suffix of a set's name, if it has this many images: " (val)", or " (train; 2,000 of 50,000)"."""
        notes = [note for note in (self.split, f"{images:,} of {self.whole:,}" if self.parts else "") if note]
        return f" ({'; '.join(notes)})" if notes else ""

    def drawn(self, part: Part, whole: int) -> DataSpec:
        """Return the spec of a part of these images; `whole` is their number, unless they are a part themselves."""
        return replace(self, parts=(*self.parts, part), whole=self.whole if self.parts else whole)

    def load(
        self, root: str | Path | None = None, preparation: Preparation | None = None, progress: Progress | None = None
    ) -> ImageSet:
        """Load the images again; raise if they are not those that this spec describes.

        `preparation` must be the one that they had, since the fingerprint is that of the prepared pixels.
        """
        from macs.data.loading import load  # a circular import: loading needs DataSpec

        if self.source == MEMORY:
            raise MacsError(
                f"{self.images:,} images were made in memory, so no other process can load them; "
                "save them as a folder or a .npy file, and load that."
            )
        if any(part.side == "chosen" for part in self.parts):
            raise MacsError(
                f"{self} were chosen by hand, and only a hash of their positions is recorded; "
                "load the whole set and choose them again."
            )
        images = load(
            self.source,
            self.split,
            root,
            progress=progress,
            labelled=self.labelled,
            preparation=preparation,
            base=self.base or None,
            broken=self.broken,
        )
        images = replace(images, mirror=self.mirror)
        for part in self.parts:
            images = images.split(part.count, part.seed)[part.side == "rest"]
        loaded = images.spec
        if (loaded.images, loaded.fingerprint) != (self.images, self.fingerprint):
            raise MacsError(
                f"{self.source} has changed: expected {self.images:,} images with the fingerprint "
                f"{self.fingerprint}, but found {loaded.images:,} with {loaded.fingerprint} at {images.size} x "
                f"{images.size} pixels; get the same images, or give the same preparation."
            )
        return images


IN_MEMORY = DataSpec(MEMORY)


SAMPLE = 256  # images of a set that enter its fingerprint

_known: WeakKeyDictionary[ImageSet, str] = WeakKeyDictionary()


def fingerprint(images: ImageSet) -> str:
    """Return a hash of a set's shape and labels, and the pixels of up to 256 images spread over it; not its name."""
    if images not in _known:
        about = repr((images.pixels.shape, images.classes, images.mirror)).encode()
        labels = b"" if images.labels is None else images.labels.tobytes()
        _known[images] = short_hash(about, labels, _sample(images))
    return _known[images]


def same_pixels(a: ImageSet, b: ImageSet) -> bool:
    """Compare the images of two sets, in their order, by a sample; names and labels do not count."""
    return a.pixels.shape == b.pixels.shape and _sample(a) == _sample(b)


def pixels_hash(images: ImageSet) -> str:
    """Return a hash that is equal for two sets if `same_pixels` holds, for where the first set is not kept."""
    return short_hash(repr(images.pixels.shape).encode(), _sample(images))


def _sample(images: ImageSet) -> bytes:
    positions = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    return np.ascontiguousarray(images.pixels[positions]).tobytes()


def short_hash(*parts: bytes) -> str:
    """Return the first twelve hexadecimal digits of the SHA-256 of the parts together."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
