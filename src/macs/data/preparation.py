"""Preparation: how a picture becomes the pixels that a network was trained on.

It belongs to a network and travels with it: into the run folder, the detector file, the ONNX metadata and the service.
There is one implementation, so that training, evaluation and deployment cannot disagree.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core import settings
from macs.core.errors import MacsError
from macs.core.settings import SIZE, Edge, Span
from macs.data.pictures import decode_rgb, fit, open_rgb, resized, to_rgb

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

Level = Annotated[float, Span(0, 1)]  # mean of a channel whose pixels lie in [0, 1]
Spread = Annotated[float, Span(0, 1, open="least")]  # standard deviation of such a channel, by which pixels are divided

DRAFT = 4  # at 2, up to three times as many verdicts changed, and photographs for 32 pixels were read no faster


class Normalisation(NamedTuple):
    """A mean and a standard deviation for red, green and blue pixels in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @property
    def name(self) -> str:
        """Its name in NORMALISATIONS, compared in float32, as networks store it; empty if it is not there."""
        ours = np.array(self, np.float32)
        return next(
            (name for name, public in NORMALISATIONS.items() if (np.array(public, np.float32) == ours).all()), ""
        )


NORMALISATIONS = {
    # Hendrycks, Mazeika, Dietterich; also energy_ood, margin_ood and other code that is based on theirs.
    "oe": Normalisation((125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)),
    "openood-cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "openood-cifar100": Normalisation((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "kuangliu": Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),  # of github.com/kuangliu
    "imagenet": Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


@dataclass(frozen=True)
class Preparation:
    """The shorter side is resized, the centre is cropped; the network itself then normalises by mean and std."""

    size: Edge = SIZE  # edge of the square that the network sees
    resize: Annotated[int, Span(0, 4096)] = 0  # length of the shorter side before the crop; 0: `size`
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: tuple[Level, Level, Level] = (0.0, 0.0, 0.0)
    std: tuple[Spread, Spread, Spread] = (1.0, 1.0, 1.0)
    draft: bool = False  # decode large JPEGs at a reduced size, at least DRAFT times `resize`: faster, other pixels

    def __post_init__(self) -> None:
        settings.check(self)
        object.__setattr__(self, "resize", self.resize or self.size)
        if self.resize < self.size:
            raise MacsError(
                f"No {self.size} x {self.size} pixels can be cropped from an image whose shorter side is resized to "
                f"{self.resize}; give a resize of at least {self.size}."
            )

    def __call__(self, picture: Image.Image) -> NDArray[np.uint8]:
        """size x size x 3 pixels, 0..255. Normalisation happens inside the network, where it cannot be forgotten."""
        return fit(to_rgb(picture), self.size, self.resize, self.interpolation)

    def read(self, path: Path) -> NDArray[np.uint8]:
        """The same for an image file."""
        return self(open_rgb(path, self._enough))

    def decode(self, content: bytes, most: int | None = None) -> NDArray[np.uint8]:
        """The same for the bytes of an image file of at most `most` pixels; raises Undecodable, with the reason."""
        return self(decode_rgb(io.BytesIO(content), self._enough, most))

    @property
    def _enough(self) -> int:
        """Pixels of the shorter side at which a JPEG may be decoded; 0: all that it has."""
        return DRAFT * self.resize if self.draft else 0

    def cut(self, picture: Image.Image, box: tuple[int, int, int, int]) -> NDArray[np.uint8]:
        """A box (left, top, right, bottom) of a picture, resized to the same square whatever its aspect ratio."""
        part = to_rgb(picture).crop(box)
        return resized(part, (0, 0, *part.size), self.size, self.interpolation)

    @property
    def geometry(self) -> Preparation:
        """The part that decides the pixels: everything but mean and std."""
        return Preparation(self.size, self.resize, self.interpolation, draft=self.draft)

    @property
    def normalisation(self) -> Normalisation:
        return Normalisation(self.mean, self.std)

    def normalised(self, values: Normalisation) -> Preparation:
        """The same preparation with another mean and std."""
        return replace(self, mean=values.mean, std=values.std)

    def at_size(self, size: int | None) -> Preparation:
        """The same preparation for images of another size, cropped in the same proportion; None: this one."""
        if size in (None, self.size):
            return self
        return replace(self, size=size, resize=size * self.resize // self.size)

    def changes(self, size: int) -> bool:
        """Whether it changes images of size x size pixels."""
        return not self.size == self.resize == size

    def describe(self) -> str:
        """The preparation in words."""
        draft = f"JPEGs decoded at 1/2, 1/4 or 1/8 if {DRAFT * self.resize} pixels of the shorter side remain; "
        return (
            f"RGB; {draft if self.draft else ''}"
            f"the shorter side resized to {self.resize} pixels ({self.interpolation} with antialiasing), "
            f"the centre {self.size} x {self.size} cropped; pixels stay raw uint8 0..255, no normalisation"
        )

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        if not self.draft:  # left out, so that the keys of trainings from before drafts stay the same
            del values["draft"]
        return values

    @classmethod
    def from_dict(cls, values: Any) -> Preparation:
        """The inverse of `as_dict`, also by way of JSON or TOML."""
        return settings.from_dict(cls, values)


DEFAULT = Preparation()


def preparation_from(size: int | None, preparation: Preparation | None) -> Preparation:
    """`preparation` if it is given, else the default one at `size`; an error if the two disagree."""
    if preparation is None:
        return Preparation(SIZE if size is None else size)
    if size not in (None, preparation.size):
        raise MacsError(f"The size {size} and a preparation for {preparation.size} disagree; give one of them.")
    return preparation
