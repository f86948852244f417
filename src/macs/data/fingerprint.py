"""Fingerprints: short hashes by which the same images are known again, whatever they are called."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:  # an image set knows its fingerprint
    from macs.data.imageset import ImageSet

SAMPLE = 256  # images of a set that its fingerprint looks at

_known: WeakKeyDictionary[ImageSet, str] = WeakKeyDictionary()


def fingerprint(images: ImageSet) -> str:
    """A hash of a set's shape, its labels, and the pixels of up to 256 images spread over it; not of its name."""
    if images not in _known:
        about = repr((images.pixels.shape, images.classes, images.mirror)).encode()
        labels = b"" if images.labels is None else images.labels.tobytes()
        _known[images] = short_hash(about, labels, _sample(images))
    return _known[images]


def same_pixels(one: ImageSet, other: ImageSet) -> bool:
    """Whether two sets hold the same images in the same order, as far as a sample shows, whatever they say of them."""
    return one.pixels.shape == other.pixels.shape and _sample(one) == _sample(other)


def _sample(images: ImageSet) -> bytes:
    chosen = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    return np.ascontiguousarray(images.pixels[chosen]).tobytes()


def short_hash(*parts: bytes) -> str:
    """Twelve hexadecimal digits that differ where any part does."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
