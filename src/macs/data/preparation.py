"""Preparation: how a picture, or an image file, becomes the pixels that a network was trained on.

It belongs to a network and travels with it: into the run folder, the detector file, the ONNX metadata and the service.
There is one implementation, so that training, evaluation and deployment cannot disagree.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core import settings
from macs.core.errors import MacsError, first_line
from macs.core.files import input_file
from macs.core.settings import Span

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

# Only formats that hold pixels and nothing to execute: Pillow would otherwise hand an EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
LONGEST = 65_500  # pixels of a side, as in JPEG: decoders keep whole rows, and Pillow allocates each at once
PART = 2**18  # pixels that are converted at a time where that takes copies
BYTES = 8  # per pixel, at most, to decode most kinds of files
# Bytes per pixel of the others: libwebp and Pillow hold several copies, a TIFF may be one strip of 16-bit colours, a
# PPM of 16-bit colours is read whole, and a JPEG whose colours come in several scans is held as coefficients.
COSTLY = {"WEBP": 16, "TIFF": 16, "PPM": 10, "progressive JPEG": 12}
PROGRESSIVE, START_OF_SCAN = (0xC2, 0xC6, 0xCA, 0xCE), 0xDA  # markers of JPEG
TILE_WIDTH, TILE_HEIGHT = 322, 323  # tags of TIFF
STRIP = 8  # beyond this ratio of its sides, resizing a whole picture would take much memory
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm")


class Undecodable(Exception):
    """Why a picture cannot be read, in half a sentence."""

    def of(self, name: object) -> MacsError:
        """The error, as a whole sentence, for the picture of this name."""
        return MacsError(f"Cannot read the image {name}: {self}; replace the file or remove it.")


def open_rgb(path: Path, enough: int = 0) -> Image.Image:
    """The first frame of a file as RGB, turned upright by its EXIF orientation.

    If `enough` pixels of the shorter side suffice, a JPEG is decoded at the smallest of 1/2, 1/4 and 1/8 of its size
    that leaves as many.
    """
    path = input_file(path, "image")  # reading a FIFO or a device could block for ever
    try:
        return decode_rgb(path, enough)
    except Undecodable as error:
        raise error.of(path) from None


def decode_rgb(source: Path | BinaryIO, enough: int = 0, most: int | None = None) -> Image.Image:
    """The same from a file or bytes; the number of pixels is limited to `most`, or else by Pillow.

    With `most`, decoding takes at most 8 * `most` bytes: where a format takes more than 8 per pixel, fewer are allowed.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with Image.open(source, formats=FORMATS) as image:
            _check_size(image, most)
            if enough:
                image.draft(None, (enough, enough))
            ImageOps.exif_transpose(image, in_place=True)  # otherwise it would copy even upright pictures
            image.load()  # while the file is open: older versions of Pillow have not read an upright picture yet
            return to_rgb(image)
    except Image.DecompressionBombError:  # beyond twice its own limit, Pillow raises before it tells the size
        why = "its pixels exceed Pillow's limit" if most is None else f"its pixels exceed the limit of {most:,}"
    except UnidentifiedImageError:
        why = f"it is not one of {', '.join(FORMATS)}"
    except Exception as error:  # decoders raise anything on a broken file: OSError, SyntaxError, struct.error...
        why = first_line(error)
    raise Undecodable(why.rstrip("."))


def _check_size(image: Image.Image, most: int | None) -> None:
    """Raise if an opened file has more pixels than decode_rgb allows."""
    from PIL import Image

    width, height = image.size
    pixels, its = width * height, f"{width} x {height} pixels"
    if max(width, height) > LONGEST:
        raise ValueError(f"one side of its {its} exceeds {LONGEST:,}")
    if image.format == "TIFF" and (tile := _tile_of(image)) > pixels:
        pixels, its = tile, f"tiles of {tile:,} pixels"  # one is decoded as a whole, however small the picture
    limit, whose = (Image.MAX_IMAGE_PIXELS, "Pillow's limit") if most is None else (most, "the limit")
    if limit is not None and pixels > limit:
        raise ValueError(f"its {its} exceed {whose} of {limit:,}")
    if most is None:
        return
    kind = "progressive JPEG" if image.format in ("JPEG", "MPO") and _in_scans(image) else image.format
    if kind in COSTLY and pixels > (allowed := most * BYTES // COSTLY[kind]):
        why = f"since decoding it takes {COSTLY[kind]} bytes per pixel"
        raise ValueError(f"its {its} exceed the limit of {allowed:,} for {kind}, {why}")


def _tile_of(image: Image.Image) -> int:
    """Return the pixels of a tile of a TIFF; 0 if it has none."""
    width, height = (getattr(image, "tag_v2", {}).get(tag, 0) for tag in (TILE_WIDTH, TILE_HEIGHT))
    return int(width) * int(height)


def _in_scans(image: Image.Image) -> bool:
    """Return whether a JPEG has its colours in several scans: it is progressive, or its first scan lacks some."""
    file = image.fp  # type: ignore[attr-defined]  # every image that was opened from a file has it
    before = file.tell()
    file.seek(0)
    content: bytes = file.read()
    file.seek(before)
    place = content.find(b"\xff", 2)
    while 0 <= place < len(content) - 4:
        marker, size = content[place + 1], int.from_bytes(content[place + 2 : place + 4], "big")
        if marker in PROGRESSIVE:
            return True
        if marker == START_OF_SCAN:
            return content[place + 4] < len(image.getbands())
        alone = marker < 2 or 0xD0 <= marker < START_OF_SCAN  # without a segment; 0xFF is a marker's padding
        place = content.find(b"\xff", place + (1 if marker == 0xFF else 2 if alone else 2 + size))
    return True


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture of any mode as 8-bit RGB.

    16-bit grey is scaled by 255/65535, transparent pixels are laid over white, and palettes, CMYK and the rest are
    left to Pillow. Floating-point pixels have no agreed range and are refused.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of unknown range")
    if image.mode.startswith("I"):  # "I;16" and its byte orders, or "I", the mode of some 16-bit files
        return _by_parts(image, _scaled)
    if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return _by_parts(image, _over_white)
    return image.convert("RGB")


def _by_parts(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """A picture converted to RGB some rows at a time, so that only the result takes memory in proportion to it."""
    from PIL import Image

    rows = max(PART // max(image.width, 1), 1)
    if rows >= image.height:
        return convert(image)
    rgb = Image.new("RGB", image.size)
    for top in range(0, image.height, rows):
        box = (0, top, image.width, min(top + rows, image.height))
        rgb.paste(convert(image.crop(box)), box)
    return rgb


def _scaled(image: Image.Image) -> Image.Image:
    from PIL import Image

    values = np.asarray(image).astype(np.int32)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels are 32-bit numbers of unknown range")
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")


def _over_white(image: Image.Image) -> Image.Image:
    from PIL import Image

    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def fit(image: Image.Image, size: int, resize: int = 0, interpolation: str = "bilinear") -> NDArray[np.uint8]:
    """The shorter side resized to `resize`, or else to `size`, then the centre cropped: size x size x 3.

    These are exactly the pixels of torchvision's Resize(resize) and CenterCrop(size), which the published numbers were
    computed with. In a long strip, only the crop itself is resized; its pixels differ by up to two grey levels.
    """
    from PIL import Image

    shorter = resize or size
    if image.size == (size, size) == (shorter, shorter):
        return np.asarray(image)
    if max(image.size) > STRIP * min(image.size):
        (left, right), (top, bottom) = (crop_span(edge, min(image.size), shorter, size) for edge in image.size)
        return resized(image, (left, top, right, bottom), size, interpolation)
    width, height = (int(shorter * edge / min(image.size)) for edge in image.size)
    whole = image.resize((width, height), Image.Resampling[interpolation.upper()])
    x, y = round((width - size) / 2), round((height - size) / 2)
    return np.asarray(whole.crop((x, y, x + size, y + size)))


def resized(
    image: Image.Image, box: tuple[float, float, float, float], size: int, interpolation: str = "bilinear"
) -> NDArray[np.uint8]:
    """The part of an image in a box (left, top, right, bottom), resized to size x size x 3 pixels with antialiasing.

    Pixels around the box contribute to those at its edge, as if the whole image had been resized and then cropped.
    """
    from PIL import Image

    return np.asarray(image.resize((size, size), Image.Resampling[interpolation.upper()], box=box))


def crop_span(edge: int, shorter: int, resize: int, size: int) -> tuple[float, float]:
    """The start and end of the centre crop along an edge, in source pixels, if `shorter` is resized to `resize`."""
    length = int(resize * edge / shorter)
    start = round((length - size) / 2)
    return start * edge / length, (start + size) * edge / length


SIZE = 32  # default edge of images, in pixels
EDGE = Span(1, 1024)  # pixels; a larger value is a typing error or an attack
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

    size: Annotated[int, EDGE] = SIZE  # edge of the square that the network sees
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
    """Return `preparation` or, without one, the default at `size`; raise if the two disagree."""
    if preparation is None:
        return Preparation(SIZE if size is None else size)
    if size not in (None, preparation.size):
        raise MacsError(f"The size {size} and a preparation for {preparation.size} disagree; give one of them.")
    return preparation
