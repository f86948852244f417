"""Training transforms: which part of an image they may give, how likely each is, and that the seed decides."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from macs.data import ImageSet
from macs.data.batches import DECODERS
from macs.data.pixels import Index, Joined, picture
from macs.data.preparation import Preparation
from macs.data.transforms import augmented, crop_and_flip, crop_box, jittered, read_sorted, recoloured, resized_crops
from macs.training.recipe import Recipe
from macs.training.training_batches import draw, training_batches
from official import images, write_png


def windows(image: np.ndarray) -> Iterator[tuple[tuple[int, int, bool], np.ndarray]]:
    """Every crop of the padded image, by offset, and its mirror image."""
    size, pad = len(image), len(image) // 8
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    for top in range(2 * pad + 1):
        for left in range(2 * pad + 1):
            window = padded[top : top + size, left : left + size]
            yield (top, left, False), window
            yield (top, left, True), window[:, ::-1]


def found_windows(originals: np.ndarray, augmented: np.ndarray) -> list[tuple[int, int, bool]]:
    """Which window each augmented image is."""
    found = []
    for original, image in zip(originals, augmented, strict=True):
        matches = [key for key, window in windows(original) if np.array_equal(window, image)]
        assert len(matches) == 1
        found.append(matches[0])
    return found


@pytest.mark.parametrize("flip", [True, False])
def test_each_image_is_one_of_its_own_windows_and_all_are_equally_likely(flip: bool) -> None:
    originals = images(400, size=16)
    found = found_windows(originals, crop_and_flip(originals, flip, np.random.default_rng(0)))
    tops, lefts, flips = zip(*found, strict=True)
    for offsets in (tops, lefts):
        hits = np.bincount(offsets, minlength=5)
        assert len(hits) == 5 and abs(hits - 80).max() < 5 * np.sqrt(80)
    assert abs(np.corrcoef(tops, lefts)[0, 1]) < 0.2
    assert 160 < sum(flips) < 240 if flip else not any(flips)


@pytest.mark.parametrize(
    ("augment", "mirror", "flips"),
    [("auto", True, True), ("auto", False, False), ("crop-flip", False, True), ("crop", True, False)],
)
def test_auto_flips_only_what_may_be_flipped(augment: Any, mirror: bool, flips: bool) -> None:
    train = replace(ImageSet.from_array(images(64, size=16), np.arange(64)), mirror=mirror)
    outliers = replace(ImageSet.from_array(images(64, seed=1, size=16)), mirror=not mirror)
    (batch,) = training_batches(train, outliers, Recipe(batch_in=64, batch_out=64, augment=augment))
    found = found_windows(train.pixels[batch.labels.numpy()], batch.images.numpy())
    assert any(flip for *_, flip in found) == flips
    assert len({key[:2] for key in found}) > 10
    order = draw(64, 64, np.random.default_rng((0, 0, 1)))
    found_out = found_windows(outliers.pixels[order], batch.outliers.numpy())
    assert any(flip for *_, flip in found_out) == (flips if augment != "auto" else not mirror)


def test_tiny_images_that_leave_nothing_to_pad_are_only_flipped() -> None:
    originals = images(50, size=4)
    cropped = crop_and_flip(originals, True, np.random.default_rng(0))
    same = (cropped == originals).all(axis=(1, 2, 3))
    flipped = (cropped == originals[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (same | flipped).all() and 10 < same.sum() < 40


def test_reading_in_sorted_order_changes_nothing(tmp_path: Path) -> None:
    pixels = images(40, size=8)
    np.save(tmp_path / "a.npy", pixels)
    index = np.random.default_rng(0).integers(0, 40, 100)
    asked: list[Any] = []

    class Watched:
        shape = pixels.shape

        def __len__(self) -> int:
            return len(pixels)

        def __getitem__(self, index: Index) -> np.ndarray:
            asked.append(index)
            return pixels[index]

    for source in (pixels, np.load(tmp_path / "a.npy", mmap_mode="r"), Watched()):
        np.testing.assert_array_equal(read_sorted(source, index), pixels[index])
    assert (np.diff(asked[0]) >= 0).all()


@pytest.mark.parametrize(("width", "height"), [(40, 30), (32, 32), (300, 20), (7, 500), (1, 1)])
def test_a_resized_crop_lies_inside_and_has_an_allowed_area_and_ratio(width: int, height: int) -> None:
    random = np.random.default_rng(0)
    boxes = [crop_box(width, height, random.random((10, 4))) for _ in range(500)]
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= width and 0 <= top < bottom <= height
        w, h = right - left, bottom - top
        assert (w - 1) / (h + 1) <= 4 / 3 and (w + 1) / (h - 1 or 0.5) >= 3 / 4
        assert w * h >= 0.07 * width * height or max(width / height, height / width) > 4 / 3
    assert width == 1 or len(set(boxes)) > 100 or max(width / height, height / width) > 10


def test_areas_and_ratios_of_resized_crops_are_drawn_evenly() -> None:
    random = np.random.default_rng(0)
    boxes = np.array([crop_box(1000, 1000, random.random((1, 4))) for _ in range(4000)])
    w, h = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    small = (w * h < 0.5e6) & (w < 1000) & (h < 1000)  # below half the area every ratio fits
    areas, ratios = w[small] * h[small] / 1e6, np.log(w[small] / h[small])
    assert areas.min() == pytest.approx(0.08, abs=0.005) and areas.mean() == pytest.approx(0.29, abs=0.01)
    assert abs(ratios).max() == pytest.approx(np.log(4 / 3), abs=0.01) and abs(ratios.mean()) < 0.01
    assert np.corrcoef(areas, ratios)[0, 1] == pytest.approx(0, abs=0.06)


def test_a_crop_that_never_fits_is_the_centre() -> None:
    never = np.full((10, 4), 0.999)
    assert crop_box(300, 30, never) == (130, 0, 170, 30)  # 40 x 30 is the widest
    assert crop_box(30, 300, never) == (0, 130, 30, 170)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Pictures of 60 x 40 pixels, to be prepared at 8 x 8."""
    pictures = np.random.default_rng(0).integers(0, 256, (6, 40, 60, 3), dtype=np.uint8)
    for i, pixels in enumerate(pictures):
        write_png(tmp_path / "ab"[i % 2] / f"{i}.png", pixels)
    return tmp_path


def test_resized_crops_are_cut_from_the_original_pictures(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, size = np.array([5, 0, 3, 3]), 8
    eager = replace(ImageSet.from_folder(photos, size), mirror=False)
    monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 0)
    lazy = replace(ImageSet.from_folder(photos, size), mirror=False)
    crops = resized_crops(eager, index, np.random.default_rng(1))
    np.testing.assert_array_equal(crops, resized_crops(lazy, index, np.random.default_rng(1)))
    draws = np.random.default_rng(1).random((4, 10, 4))
    for i, crop in enumerate(crops):
        original = Image.open(photos / eager.files[index[i]])
        part = original.crop(crop_box(60, 40, draws[i])).resize((size, size), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(crop, part)


def test_the_original_is_found_behind_every_source(photos: Path) -> None:
    read = ImageSet.from_folder(photos, 8)
    some = read.subset([4, 2]).resized(6)
    assert some.size == 6 and picture(some.pixels, 1).size == (60, 40)
    np.testing.assert_array_equal(picture(some.pixels, 1), Image.open(photos / read.files[2]))
    joined = Joined([read.pixels, images(3, size=8)])
    assert picture(joined, 5).size == (60, 40)
    np.testing.assert_array_equal(picture(joined, 7), images(3, size=8)[1])


def test_resized_crops_of_arrays_are_cut_from_their_pixels_and_mirrored_where_that_may_be() -> None:
    whole = ImageSet.from_array(images(1, size=16)).subset([0] * 200)
    index = np.arange(200)
    crops = augmented(whole, index, "resized-crop", np.random.default_rng(0))
    straight = augmented(replace(whole, mirror=False), index, "resized-crop", np.random.default_rng(0))
    flipped = (crops == straight[:, :, ::-1]).all(axis=(1, 2, 3))
    assert ((crops == straight).all(axis=(1, 2, 3)) ^ flipped).all() and 70 < flipped.sum() < 130


def test_resized_crops_use_the_interpolation_of_the_preparation(photos: Path) -> None:
    for interpolation in ("bilinear", "bicubic"):
        preparation = Preparation(8, interpolation=interpolation)
        read = replace(ImageSet.from_folder(photos, preparation=preparation), mirror=False)
        crop = resized_crops(read, np.array([0]), np.random.default_rng(0))[0]
        box = crop_box(60, 40, np.random.default_rng(0).random((1, 10, 4))[0])
        part = Image.open(photos / read.files[0]).crop(box)
        np.testing.assert_array_equal(crop, part.resize((8, 8), Image.Resampling[interpolation.upper()]))


def test_an_epoch_of_resized_crops_is_decided_by_its_seed(photos: Path) -> None:
    train = ImageSet.from_folder(photos, 8)
    one, again, other = (
        torch.cat([batch.images for batch in training_batches(train, None, recipe)])
        for recipe in (Recipe(batch_in=2, seed=seed, augment="resized-crop") for seed in (0, 0, 1))
    )
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_colours_change_as_torchvision_changes_them(order: tuple[int, ...]) -> None:
    functional = pytest.importorskip("torchvision.transforms.functional")
    changes = (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation)
    for image, factors in zip(images(4), np.random.default_rng(0).uniform(0.2, 1.8, (4, 3)), strict=True):
        floats, picture = torch.from_numpy(image).permute(2, 0, 1) / 255, Image.fromarray(image)
        for change in order:
            floats, picture = (changes[change](each, factors[change]) for each in (floats, picture))
        ours = recoloured(image, factors.astype(np.float32), order).astype(int)
        # Pictures are rounded down after each change, and torchvision's weight of red is 0.2989 for tensors.
        assert abs(ours - (floats * 255).permute(1, 2, 0).numpy()).max() < 0.6
        assert abs(ours - np.asarray(picture)).max() <= 6


def test_the_factor_1_keeps_an_image_and_0_leaves_black_or_grey() -> None:
    (image,) = images(1)
    grey = image @ [0.299, 0.587, 0.114]
    ones = np.ones(3, np.float32)
    np.testing.assert_array_equal(recoloured(image, ones, (0, 1, 2)), image)
    zeros = (np.zeros_like(image), np.full_like(image, round(grey.mean())), np.repeat(grey[..., None], 3, axis=2))
    for change, expected in enumerate(zeros):
        factors = np.where(np.arange(3) == change, 0, ones)
        np.testing.assert_allclose(recoloured(image, factors, (2, 0, 1)), expected, atol=0.5001)


def test_the_strength_of_a_jitter_bounds_its_factors_and_all_are_equally_likely() -> None:
    flat = np.full((600, 2, 2, 3), 100, np.uint8)  # grey: only the brightness can change
    levels = jittered(flat, 0.4, np.random.default_rng(0))[:, 0, 0, 0]
    assert levels.min() in (60, 61) and levels.max() in (139, 140)
    assert (abs(np.histogram(levels, 8, (60, 140))[0] - 75) < 5 * np.sqrt(75)).all()


@pytest.mark.parametrize("how", ["resized-crop", "crop-flip", "none"])
def test_a_jitter_follows_the_crops_whatever_the_threads(
    how: Any, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, index, random = ImageSet.from_folder(photos, 8), np.arange(6), np.random.default_rng(3)
    plain = augmented(train, index, how, random)
    expected = jittered(plain, 0.5, random)
    assert (expected != plain).any(axis=(1, 2, 3)).all()
    for threads in (1, 5):
        monkeypatch.setattr(DECODERS, "workers", threads)
        np.testing.assert_array_equal(augmented(train, index, how, np.random.default_rng(3), 0.5), expected)
