"""ImageSet: its images, labels, names and parts."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image

import macs
import macs.report
from macs.core.errors import MacsError
from macs.data import ImageSet
from official import images


def test_resizing_to_the_same_size_changes_nothing() -> None:
    photos = ImageSet.from_array(images(3))
    assert photos.resized(32) is photos
    assert photos.resized(16).size == 16 and photos.size == 32


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros((2, 8, 8, 3), np.float32), "float32 of shape 2 x 8 x 8 x 3"),
        (np.zeros((2, 8, 8), np.uint8), "uint8 of shape 2 x 8 x 8"),
        (np.zeros((2, 8, 8, 4), np.uint8), "uint8 of shape 2 x 8 x 8 x 4"),
        (np.zeros((2, 8, 9, 3), np.uint8), "uint8 of shape 2 x 8 x 9 x 3"),
        (np.zeros((0, 8, 8, 3), np.uint8), "no images"),
    ],
)
def test_what_is_not_images_is_refused_by_what_it_is(array: np.ndarray, what: str) -> None:
    with pytest.raises(MacsError, match=f"photos holds {what}"):
        ImageSet.from_array(array, name="photos")


@pytest.mark.parametrize(
    ("labels", "classes", "why"),
    [
        ([0, 1], (), "3 images but 2 labels"),
        ([0, 1, 2], ("a", "b"), "labels 0 to 2 for 2 classes"),
        ([-1, 0, 1], ("a", "b"), "labels -1 to 1 for 2 classes"),
        ([0.0, 1.0, 1.0], (), "float64"),
        ([[0], [1], [1]], (), r"shape \(3, 1\)"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[Any], classes: tuple[Any, ...], why: str) -> None:
    with pytest.raises(MacsError, match=why):
        ImageSet.from_array(images(3), labels, classes)


def test_labels_become_int64_and_name_their_classes() -> None:
    photos = ImageSet.from_array(images(3), np.array([2, 0, 2], np.uint8))
    assert photos.labels.dtype == np.int64 and photos.labels.tolist() == [2, 0, 2]
    assert photos.classes == ("0", "1", "2")


def test_a_subset_keeps_images_labels_and_file_names_together() -> None:
    pixels = images(6)
    photos = ImageSet("photos", pixels, np.arange(6), tuple("abcdef"), False, tuple(f"{i}.png" for i in range(6)))
    part = photos.subset([4, 1])
    np.testing.assert_array_equal(part.pixels[:], pixels[[4, 1]])
    assert (part.labels.tolist(), part.files, part.classes) == ([4, 1], ("4.png", "1.png"), tuple("abcdef"))
    assert part.mirror is False and part.name_of(1) == "1.png"
    masked = part.subset(np.array([False, True]))
    np.testing.assert_array_equal(masked.pixels[:], pixels[[1]])
    with pytest.raises(MacsError, match="out of bounds"):
        photos.subset([6])


def test_images_without_files_are_named_by_their_place() -> None:
    photos = ImageSet.from_array(images(3), name="photos")
    assert [photos.name_of(0), photos.name_of(-1)] == ["photos[0]", "photos[2]"]


@pytest.mark.parametrize(("first", "count"), [(0.25, 25), (30, 30), (0.999, None), (np.int64(7), 7)])
def test_a_split_shares_out_every_image_once(first: float, count: int | None) -> None:
    photos = ImageSet.from_array(images(100, size=8), np.arange(100))
    if count is None:
        with pytest.raises(MacsError, match="one part would be empty"):
            photos.split(first)
        return
    one, other = photos.split(first, seed=3)
    assert len(one) == count
    assert sorted([*one.labels, *other.labels]) == list(range(100))
    np.testing.assert_array_equal(one.pixels[:], photos.pixels[one.labels])
    assert one.labels.tolist() == photos.split(first, seed=3)[0].labels.tolist()
    assert one.labels.tolist() != photos.split(first, seed=4)[0].labels.tolist()


@pytest.mark.parametrize("first", [0, 100, 1.0, -1])
def test_a_split_leaves_something_on_both_sides(first: float) -> None:
    with pytest.raises(MacsError, match="one part would be empty"):
        ImageSet.from_array(images(100, size=8)).split(first)


@pytest.mark.parametrize(
    ("labels", "classes", "why"),
    [
        ([0, 1, 2**62], (), "the label 4611686018427387904"),
        (np.array([0, 1, 2**64 - 1], np.uint64), (), "the label 18446744073709551615"),
        (2**62, (), r"shape \(\)"),
        ([0, 1, 2**70], (), "object"),
        ([True, False, True], (), "bool"),
        (["a", "b", "c"], (), "<U1"),
        ([[0], [1, 2], []], (), "cannot become one array"),
        ([], (), "float64"),
        (np.array([], int), (), "3 images but 0 labels"),
        ([-3, -2, -1], (), "labels -3 to -1"),
        ([0, 1, 1], ("a", "b", "a"), "two classes called 'a'"),
        ([0, 1, 1], "ab", "a list of strings, not 'ab'"),
        ([0, 1, 1], (0, 1), r"a list of strings, not \(0, 1\)"),
        ([0, 1, 1], 2, "a list of strings, not 2"),
    ],
    ids=str,
)
def test_labels_and_class_names_of_another_kind_are_refused(labels: Any, classes: Any, why: str) -> None:
    with pytest.raises(MacsError, match=why):
        ImageSet.from_array(images(3), labels, classes)
    if np.ndim(classes) == 0 or classes:
        with pytest.raises(MacsError, match=why):
            ImageSet("photos", images(3), labels, classes)


@pytest.mark.parametrize("array", [[images(1)[0], images(1, size=8)[0]], object(), {}, "photos", [1, "a"]], ids=type)
def test_what_is_no_array_is_refused(array: Any) -> None:
    with pytest.raises(MacsError, match="photos"):
        ImageSet.from_array(array, name="photos")
    with pytest.raises(MacsError, match="photos"):
        ImageSet("photos", array)


def test_tensors_and_lists_of_images_become_an_array() -> None:
    pixels = images(3)
    others: list[Any] = [torch.from_numpy(pixels), list(pixels), [Image.fromarray(image) for image in pixels]]
    for given in others:
        read = ImageSet.from_array(given, torch.tensor([0, 1, 0]))
        np.testing.assert_array_equal(read.pixels[:], pixels)
        assert read.labels.tolist() == [0, 1, 0]


def test_a_set_is_shown_in_one_line() -> None:
    photos = ImageSet.from_array(images(1200, size=8), np.arange(1200) % 2, name="photos")
    assert repr(photos) == str(photos) == "<ImageSet photos: 1,200 images of 8 x 8 pixels, 2 classes>"
    assert repr(ImageSet.from_array(images(2))) == "<ImageSet array: 2 images of 32 x 32 pixels, no labels>"


def test_ood_sets_are_given_by_name(known: ImageSet, known_test: ImageSet) -> None:
    net = macs.nets.build("wrn-10-1", classes=3)
    for sets in (known, [known], None):
        with pytest.raises(MacsError, match="The OOD sets must be a dict of ImageSets by name"):
            macs.evaluate(net, known_test, cast(Any, sets))
