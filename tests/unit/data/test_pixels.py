"""Sources of pixels read like the arrays that they stand for, and remember the pictures behind them."""

import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from macs.core.errors import MacsError
from macs.data.pixels import Index, Joined, Mapped, Resized, Subset, check_images, picture, positions
from macs.data.preparation import Preparation
from official import images

INDICES: list[Index] = [slice(None), slice(2, 9), slice(None, None, 3), slice(5, 5), slice(-4, None)]
INDICES += [np.array(index, np.int64) for index in ([], [0], [9, 0, 9, 4], [-1, -10, 3], [3, 4, 5, 6])]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_joined_parts_read_like_one_array(index: Any) -> None:
    whole = images(10, size=8)
    joined = Joined([whole[:3], whole[3:4], whole[4:]])
    np.testing.assert_array_equal(joined[index], whole[index])
    assert joined.shape == whole.shape and len(joined) == 10


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_choice_of_a_choice_reads_like_indexing_twice(index: Any) -> None:
    whole = images(40, size=8)
    first, second = np.random.default_rng(0).permutation(40)[:20], np.random.default_rng(1).permutation(20)[:10]
    chosen = Subset(Subset(whole, first), second)
    np.testing.assert_array_equal(chosen[index], whole[first][second][index])
    assert chosen.source is whole and chosen.shape == (10, 8, 8, 3)


@pytest.mark.parametrize("position", [10, -11])
def test_joined_refuses_what_numpy_would(position: Any) -> None:
    whole = images(10, size=8)
    for pixels in (whole, Joined([whole[:3], whole[3:]])):
        with pytest.raises(IndexError):
            pixels[np.array([0, position])]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_positions_are_those_that_numpy_would_take(index: Any) -> None:
    assert positions(index, 10).tolist() == np.arange(10)[index].tolist()


def test_resized_images_are_those_that_pillow_resizes() -> None:
    whole = images(3, size=32)
    resized = Resized(whole, Preparation(20))[np.array([2, 0])]
    for image, original in zip(resized, whole[[2, 0]], strict=True):
        by_pillow = Image.fromarray(original).resize((20, 20), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(image, np.asarray(by_pillow))


def mapped_from(file: Path, whole: np.ndarray) -> Mapped:
    """These images in a memory-mapped file."""
    file.write_bytes(whole.tobytes())
    with file.open("rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    return Mapped(np.frombuffer(mapping, np.uint8).reshape(whole.shape), mapping)


def test_a_mapped_file_travels_to_another_process_once_for_all_its_parts(tmp_path: Path) -> None:
    """As images do that Ray hands to its workers, which may not have the file."""
    whole = images(100, size=8)
    mapped = mapped_from(tmp_path / "images", whole)
    parts = [Subset(mapped, np.arange(90)), Subset(mapped, np.arange(90, 100))]
    content = pickle.dumps(parts)
    (tmp_path / "images").unlink()
    np.testing.assert_array_equal(np.concatenate([part[:] for part in pickle.loads(content)]), whole)
    assert len(content) < 1.2 * whole.nbytes


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_a_mapped_file_reads_like_an_array_that_may_be_changed(tmp_path: Path, index: Any) -> None:
    whole = images(10, size=8)
    mapped = mapped_from(tmp_path / "images", whole)
    read = mapped[index]
    np.testing.assert_array_equal(read, whole[index])
    read[:] = 0
    np.testing.assert_array_equal(mapped[:], whole)
    assert (mapped.shape, mapped.dtype, len(mapped)) == (whole.shape, np.dtype(np.uint8), 10)


def test_the_picture_behind_an_image_is_found_through_every_source() -> None:
    originals = images(6, size=16)
    small = Resized(originals, Preparation(8))
    seen = Subset(Joined([Subset(small, np.array([5, 4])), small]), np.array([7, 0, 3]))
    assert seen.shape == (3, 8, 8, 3)
    for place, original in enumerate((5, 5, 1)):  # 7 is small[5], 0 is the first choice, 3 is small[1]
        np.testing.assert_array_equal(np.asarray(picture(seen, place)), originals[original])
    np.testing.assert_array_equal(np.asarray(picture(originals, 2)), originals[2])


@pytest.mark.parametrize(
    ("pixels", "what"),
    [
        ([1], "holds a list"),
        (np.zeros((2, 4, 4, 3)), "holds float64 of shape 2 x 4 x 4 x 3"),
        (np.zeros((2, 4, 5, 3), np.uint8), "holds uint8 of shape 2 x 4 x 5 x 3"),
        (np.zeros((2, 3, 4, 4), np.uint8), "holds uint8 of shape 2 x 3 x 4 x 4"),
        (np.zeros((), np.uint8), r"holds uint8 of shape \(\)"),
        (np.zeros((0, 4, 4, 3), np.uint8), "holds no images"),
    ],
)
def test_what_is_no_stack_of_square_images_says_what_it_is(pixels: Any, what: Any) -> None:
    with pytest.raises(MacsError, match=f"^The file {what}"):
        check_images("The file", pixels)


def test_a_stack_of_square_images_passes() -> None:
    check_images("The file", images(1, size=4))
