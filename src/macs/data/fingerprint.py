"""Fingerprints: short hashes by which the same images are known again, whatever they are called."""

import hashlib
from weakref import WeakKeyDictionary

import numpy as np

from macs.data.imageset import ImageSet

SAMPLE = 256  # images of a set that its fingerprint looks at

_pixels: WeakKeyDictionary[ImageSet, str] = WeakKeyDictionary()


def fingerprint(images: ImageSet) -> str:
    """A hash of a set's labels, its classes, and the pixels of up to 256 images spread over it; not of its name."""
    about = repr((images.classes, images.mirror)).encode()
    labels = b"" if images.labels is None else images.labels.tobytes()
    return short_hash(about, labels, pixels_of(images).encode())


def pixels_of(images: ImageSet) -> str:
    """A hash of how many images there are, of their size, and of the pixels of up to 256 of them."""
    if images not in _pixels:
        chosen = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
        shape = repr(tuple(images.pixels.shape)).encode()
        _pixels[images] = short_hash(shape, np.ascontiguousarray(images.pixels[chosen]).tobytes())
    return _pixels[images]


def short_hash(*parts: bytes) -> str:
    """Twelve hexadecimal digits that differ where any part does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
