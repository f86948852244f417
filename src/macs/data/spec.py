"""DataSpec: which images a set holds and where they come from, so that it can be loaded again, here or elsewhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from macs.core import settings
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from macs.data.folder import Progress
    from macs.data.imageset import ImageSet
    from macs.data.preparation import Preparation

MEMORY = "memory"  # the source of images that came from no place to load them from


@dataclass(frozen=True)
class Part:
    """Some images of a set: one side of `ImageSet.split(count, seed)`, or those of `ImageSet.subset(positions)`."""

    side: Literal["first", "rest", "chosen"]
    count: int  # images on the first side of the split, or chosen
    seed: int = 0  # of the split
    positions: str = ""  # hash of the chosen positions

    def __post_init__(self) -> None:
        settings.check(self)


@dataclass(frozen=True)
class DataSpec:
    """Small, and the same after a round through JSON; the fingerprint tells whether images are still the same."""

    source: str  # a name in the catalogue or a path, as it was given, or MEMORY
    split: str = ""  # empty where the source is not divided into splits
    parts: tuple[Part, ...] = ()  # what was drawn from the split, one after the other; none: all of it
    labelled: bool = True  # False where the folders inside a folder are no classes
    mirror: bool = True  # may the images be flipped?
    images: int = 0
    whole: int = 0  # images of all the split
    fingerprint: str = ""

    def __post_init__(self) -> None:
        settings.check(self)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, told: Any) -> DataSpec:
        """What `as_dict` gave, also by way of JSON or TOML."""
        return settings.from_dict(cls, told)

    def __str__(self) -> str:
        return f"{self.source}{self.note(self.images)}"

    def note(self, images: int) -> str:
        """What stands behind the name of so many of these images: " (val)", or " (train; 2,000 of 50,000)"."""
        said = [each for each in (self.split, f"{images:,} of {self.whole:,}" if self.parts else "") if each]
        return f" ({'; '.join(said)})" if said else ""

    def drawn(self, part: Part, whole: int) -> DataSpec:
        """The spec of a part of these images, which are `whole` in number if they are no part themselves."""
        return replace(self, parts=(*self.parts, part), whole=self.whole if self.parts else whole)

    def load(
        self, root: str | Path | None = None, preparation: Preparation | None = None, progress: Progress | None = None
    ) -> ImageSet:
        """The images, read again; refused if they are not those that this spec was made from.

        `preparation` must be the one that they had, since a fingerprint is that of prepared pixels.
        """
        from macs.data.loading import load  # it makes image sets, and they have a DataSpec

        if self.source == MEMORY:
            raise MacsError(
                f"{self.images:,} images were made in memory, so that no other process can load them; "
                "save them as a folder or a .npy file, and load that."
            )
        if any(part.side == "chosen" for part in self.parts):
            raise MacsError(
                f"{self} were chosen by hand, and only the hash of their positions is known; "
                "load the whole set and choose them again."
            )
        images = load(self.source, self.split, root, progress=progress, labelled=self.labelled, preparation=preparation)
        images = replace(images, mirror=self.mirror)
        for part in self.parts:
            images = images.split(part.count, part.seed)[part.side == "rest"]
        found = images.spec
        if (found.images, found.fingerprint) != (self.images, self.fingerprint):
            raise MacsError(
                f"{self.source} is not what it was: expected were {self.images:,} images with the fingerprint "
                f"{self.fingerprint}, and here are {found.images:,} with {found.fingerprint} at {images.size} x "
                f"{images.size} pixels; get the same images, or give the same preparation."
            )
        return images


IN_MEMORY = DataSpec(MEMORY)
