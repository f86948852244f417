"""An image file -> an RGB picture, whatever its mode; a picture -> a square of pixels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError, first_line
from macs.core.files import input_file

if TYPE_CHECKING:  # Pillow is loaded by the first image, not by `import macs`
    from PIL import Image

# Only formats that hold pixels and nothing to execute: Pillow would otherwise hand an EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
LONGEST = 65_500  # pixels of a side, as in JPEG: decoders keep whole rows, and Pillow allocates each at once
PART = 2**18  # pixels that are converted at a time where that takes copies
BYTES = 8  # per pixel, at most, to decode most kinds of files
# Bytes per pixel of the others: for WebP libwebp and Pillow hold several copies, for a JPEG its coefficients.
COSTLY = {"WEBP": 16, "progressive JPEG": 12}
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
    if max(width, height) > LONGEST:
        raise ValueError(f"one side of its {width} x {height} pixels exceeds {LONGEST:,}")
    limit, whose = (Image.MAX_IMAGE_PIXELS, "Pillow's limit") if most is None else (most, "the limit")
    if limit is not None and width * height > limit:
        raise ValueError(f"its {width} x {height} pixels exceed {whose} of {limit:,}")
    kind = "progressive JPEG" if image.format == "JPEG" and "progressive" in image.info else image.format
    if most is not None and kind in COSTLY and width * height > (allowed := most * BYTES // COSTLY[kind]):
        why = f"since decoding it takes {COSTLY[kind]} bytes per pixel"
        raise ValueError(f"its {width} x {height} pixels exceed the limit of {allowed:,} for {kind}, {why}")


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
