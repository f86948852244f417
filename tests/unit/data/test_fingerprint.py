"""The same images are known again, and others are not taken for them."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from macs.data import ImageSet
from macs.data.spec import SAMPLE, fingerprint, same_pixels, short_hash
from official import images


@pytest.fixture
def photos() -> ImageSet:
    return ImageSet.from_array(images(12, size=8), np.arange(12) % 3, ["a", "b", "c"], name="photos")


def test_a_copy_by_another_name_has_the_same_fingerprint(photos: Any) -> None:
    copied = ImageSet.from_array(photos.pixels[:].copy(), photos.labels.copy(), photos.classes, name="other")
    assert fingerprint(copied) == fingerprint(photos) and same_pixels(copied, photos)
    assert fingerprint(photos.subset(np.arange(12))) == fingerprint(photos)


def test_a_pixel_a_label_a_class_an_order_or_a_mirror_make_another_set(photos: Any) -> None:
    pixels, labels = photos.pixels[:], photos.labels
    changed = pixels.copy()
    changed[7, 3, 3, 1] ^= 1
    sets = [
        photos,
        ImageSet.from_array(changed, labels, photos.classes),
        ImageSet.from_array(pixels, labels[::-1].copy(), photos.classes),
        ImageSet.from_array(pixels, labels, ["a", "b", "d"]),
        ImageSet.from_array(pixels),
        replace(photos, mirror=False),
        photos.subset(np.arange(12)[::-1]),
        photos.subset(np.arange(11)),
    ]
    assert len({fingerprint(each) for each in sets}) == len(sets)


def test_same_pixels_asks_for_nothing_but_pixels(photos: Any) -> None:
    assert same_pixels(photos, ImageSet.from_array(photos.pixels[:]))
    assert not same_pixels(photos, photos.subset(np.arange(12)[::-1]))
    assert not same_pixels(photos, photos.subset(np.arange(11)))


def test_of_a_large_set_a_sample_from_first_to_last_is_looked_at() -> None:
    class Asked:
        """Black images that remember which of them were read."""

        shape, dtype = (100_000, 2, 2, 3), np.dtype(np.uint8)

        def __init__(self) -> None:
            self.positions: list[int] = []

        def __len__(self) -> int:
            return self.shape[0]

        def __getitem__(self, index: Any, /) -> Any:
            self.positions += index.tolist()
            return np.zeros((len(index), *self.shape[1:]), np.uint8)

    pixels = Asked()
    large = ImageSet("large", pixels)
    first = fingerprint(large)
    assert len(set(pixels.positions)) == len(pixels.positions) == SAMPLE
    assert {min(pixels.positions), max(pixels.positions)} == {0, 99_999}
    assert np.ptp(np.diff(pixels.positions)) <= 1  # spread evenly
    assert fingerprint(large) == first and len(pixels.positions) == SAMPLE  # it is looked at once


def test_a_short_hash_is_the_beginning_of_sha256() -> None:
    assert short_hash(b"ab", b"c") == hashlib.sha256(b"abc").hexdigest()[:12]
    assert short_hash() == hashlib.sha256().hexdigest()[:12]
