"""Preparation: the pixels of torchvision's Resize and CenterCrop, and the same value after a round through JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from macs.core.errors import MacsError
from macs.data import ImageSet, load
from macs.data.preparation import NORMALISATIONS, Normalisation, Preparation, preparation_from
from official import images

SIDES = [(32, 32), (64, 48), (48, 64), (33, 100), (20, 20), (500, 375), (30, 400)]


def photograph(width: int, height: int) -> Image.Image:
    """Random, but smooth: of noise, the intermediate rounding of Pillow's two passes would show."""
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise).filter(ImageFilter.GaussianBlur(2))


@pytest.mark.parametrize(("width", "height"), SIDES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "resize"), [(32, 32), (32, 36), (24, 40)])
def test_pixels_are_those_of_a_whole_resize_and_a_centre_crop(
    width: int, height: int, interpolation: Any, size: int, resize: int
) -> None:
    picture = photograph(width, height)
    short = min(width, height)
    whole = picture.resize(
        (int(resize * width / short), int(resize * height / short)), Image.Resampling[interpolation.upper()]
    )
    left, top = round((whole.width - size) / 2), round((whole.height - size) / 2)
    expected = np.asarray(whole.crop((left, top, left + size, top + size))).astype(int)
    pixels = Preparation(size, resize, interpolation)(picture)
    assert pixels.dtype == np.uint8 and pixels.shape == (size, size, 3)
    difference = abs(pixels - expected)
    assert difference.max() <= (2 if height > 8 * width else 0) and difference.mean() < 0.3


def test_pictures_of_any_mode_become_rgb() -> None:
    grey = photograph(40, 30).convert("L")
    np.testing.assert_array_equal(Preparation(16)(grey), Preparation(16)(grey.convert("RGB")))


def test_a_preparation_is_the_same_after_a_round_through_json() -> None:
    preparation = Preparation(224, 256, "bicubic", *NORMALISATIONS["imagenet"])
    assert Preparation.from_dict(json.loads(json.dumps(preparation.as_dict()))) == preparation
    assert preparation.geometry == Preparation(224, 256, "bicubic")
    assert preparation.geometry.normalised(NORMALISATIONS["imagenet"]) == preparation


@pytest.mark.parametrize(("edge", "divisor"), [(255, 1), (256, 2), (511, 2), (512, 4), (2000, 8)])
def test_a_draft_has_the_pixels_of_a_jpeg_decoded_at_a_reduced_size(tmp_path: Path, edge: int, divisor: int) -> None:
    """At 32 pixels, the shorter side keeps at least 128."""
    file = tmp_path / "a.jpg"
    photograph(edge + 40, edge).save(file, quality=90)
    reduced = Image.open(file)
    reduced.draft(None, ((edge + 40) // divisor, edge // divisor))
    assert reduced.height == -(-edge // divisor)
    whole, draft = (Preparation(32, draft=each).read(file) for each in (False, True))
    np.testing.assert_array_equal(draft, Preparation(32)(reduced))
    np.testing.assert_array_equal(whole, Preparation(32)(Image.open(file)))
    assert abs(draft.astype(int) - whole).mean() < 1 and ((draft == whole).all() == (divisor == 1))


def test_a_draft_is_turned_upright_and_other_formats_have_none(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = photograph(600, 400)
    picture.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "a.jpg", exif=exif, quality=95)
    picture.save(tmp_path / "a.png")
    draft, whole = (Preparation(32, draft=True).read(tmp_path / name) for name in ("a.jpg", "a.png"))
    np.testing.assert_array_equal(whole, Preparation(32)(picture))
    assert abs(draft.astype(int) - whole).mean() < 2


def test_the_record_of_a_preparation_names_drafts_only_if_there_are_any() -> None:
    """Files and finished trainings of before there were drafts are found again."""
    assert "draft" not in Preparation(32).as_dict() and "JPEG" not in Preparation(32).describe()
    preparation = Preparation(32, 36, draft=True)
    assert Preparation.from_dict(json.loads(json.dumps(preparation.as_dict()))) == preparation == preparation.geometry
    assert "JPEGs decoded at 1/2, 1/4 or 1/8 if 144 pixels of the shorter side remain" in preparation.describe()


def test_a_folder_is_read_in_drafts(tmp_path: Path) -> None:
    photograph(500, 400).save(tmp_path / "a.jpg")
    preparation = Preparation(32, draft=True)
    images = ImageSet.from_folder(tmp_path, preparation=preparation)
    np.testing.assert_array_equal(images.pixels[:][0], preparation.read(tmp_path / "a.jpg"))
    assert images.preparation == preparation


def test_what_happens_is_said_in_words() -> None:
    assert Preparation(16).describe() == (
        "RGB; the shorter side resized to 16 pixels (bilinear with antialiasing), the centre 16 x 16 cropped; "
        "pixels stay raw uint8 0..255, no normalisation"
    )
    words = Preparation(224, 256, "bicubic").describe()
    assert "resized to 256 pixels (bicubic" in words and "224 x 224 cropped" in words


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"size": 0}, "size must be at least 1"),
        ({"size": "32"}, "size must be a whole number"),
        ({"size": 32, "resize": 31}, "No 32 x 32 pixels can be cropped .* resized to 31"),
        ({"interpolation": "nearest"}, "interpolation must be one of bilinear, bicubic"),
        ({"mean": [0.5, 0.5]}, "mean must be a list of 3"),
        ({"mean": [125.3, 123.0, 113.9]}, r"mean\[0\] must be at least 0 and at most 1, not 125.3"),
        ({"std": [1, 0, 1]}, r"std\[1\] must be above 0"),
        ({"crop": 32}, "no setting of Preparation called 'crop'"),
    ],
)
def test_what_is_no_preparation_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(MacsError, match=why):
        Preparation.from_dict(settings)


def test_a_size_is_short_for_a_preparation() -> None:
    assert preparation_from(None, None) == Preparation(32, 32) and preparation_from(64, None) == Preparation(64, 64)
    imagenet = Preparation(224, 256)
    assert preparation_from(None, imagenet) == preparation_from(224, imagenet) == imagenet
    with pytest.raises(MacsError, match="The size 64 and a preparation for 224 disagree"):
        preparation_from(64, imagenet)


def test_every_source_of_images_takes_a_preparation(tmp_path: Path) -> None:
    preparation = Preparation(16, 20, "bicubic", *NORMALISATIONS["imagenet"])
    photograph(50, 40).save(tmp_path / "a.png")
    square = np.asarray(photograph(40, 40))[None]
    np.save(tmp_path / "square.npy", square)
    expected = preparation(photograph(50, 40))
    for read in (
        load(tmp_path, preparation=preparation),
        ImageSet.from_folder(tmp_path, preparation=preparation),
        ImageSet.from_files(tmp_path / "a.png", preparation=preparation),
    ):
        np.testing.assert_array_equal(read.pixels[:][0], expected)
        assert read.size == 16 and read.preparation == preparation.geometry
        assert read.prepared(preparation) is read  # and is not cropped twice
    read = load(tmp_path / "square.npy", preparation=preparation)
    np.testing.assert_array_equal(read.pixels[:][0], preparation(Image.fromarray(square[0])))
    assert load("digits", preparation=preparation).size == 16


def test_images_in_memory_are_left_alone_where_nothing_would_change() -> None:
    array = ImageSet.from_array(images(3))
    assert array.preparation is None
    assert array.prepared(Preparation(32)).pixels is array.pixels
    cropped = array.prepared(Preparation(32, 40))
    np.testing.assert_array_equal(cropped.pixels[:][1], Preparation(32, 40)(Image.fromarray(array.pixels[:][1])))


def test_a_normalisation_is_known_by_its_public_name_after_rounding_to_float32() -> None:
    for name, values in NORMALISATIONS.items():
        parts: Any = (tuple(float(np.float32(value)) for value in part) for part in values)
        rounded = Normalisation(*parts)
        assert values.name == rounded.name == name
    assert Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.51)).name == ""
