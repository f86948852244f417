"""Fingerprints: short hashes that identify a set by its images, whatever its name."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

if TYPE_CHECKING:  # imageset imports this module
    from macs.data.imageset import ImageSet

SAMPLE = 256  # images of a set that enter its fingerprint

_known: WeakKeyDictionary[ImageSet, str] = WeakKeyDictionary()


def fingerprint(images: ImageSet) -> str:
    """A hash of a set's shape, its labels, and the pixels of up to 256 images spread over it; not of its name."""
    if images not in _known:
        about = repr((images.pixels.shape, images.classes, images.mirror)).encode()
        labels = b"" if images.labels is None else images.labels.tobytes()
        _known[images] = short_hash(about, labels, _sample(images))
    return _known[images]


def same_pixels(a: ImageSet, b: ImageSet) -> bool:
    """Whether two sets hold the same images in the same order, judged by a sample; names and labels do not count."""
    return a.pixels.shape == b.pixels.shape and _sample(a) == _sample(b)


def pixels_hash(images: ImageSet) -> str:
    """A hash that is equal for two sets if `same_pixels` holds, for where the first set is not kept."""
    return short_hash(repr(images.pixels.shape).encode(), _sample(images))


def _sample(images: ImageSet) -> bytes:
    positions = np.unique(np.linspace(0, len(images) - 1, SAMPLE).astype(np.int64))
    return np.ascontiguousarray(images.pixels[positions]).tobytes()


def short_hash(*parts: bytes) -> str:
    """The first twelve hexadecimal digits of the SHA-256 of the parts together."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:12]
