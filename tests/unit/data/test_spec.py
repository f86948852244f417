"""DataSpec: a set is loaded again from what its spec says, or the spec says why not."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data import DataSpec, ImageSet, load
from macs.data.preparation import Preparation
from macs.data.spec import Part, fingerprint
from official import images, write_png


def through_json(spec: DataSpec) -> DataSpec:
    return DataSpec.from_dict(json.loads(json.dumps(spec.as_dict())))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder that is divided into train and val, with two classes."""
    folder = tmp_path / "photos"
    for i, pixels in enumerate(images(12, size=8)):
        write_png(folder / ("train" if i < 8 else "val") / "ab"[i % 2] / f"{i}.png", pixels)
    return folder


def same(one: ImageSet, other: ImageSet) -> bool:
    labels = (one.labels is None) == (other.labels is None) and np.array_equal(one.labels, other.labels)
    return labels and np.array_equal(one.pixels[:], other.pixels[:]) and one.name == other.name


@pytest.mark.parametrize("split", ["train", "val"])
@pytest.mark.parametrize("labelled", [True, False])
def test_a_folder_is_loaded_again(photos: Path, split: str, labelled: bool) -> None:
    before = load(photos, split, size=8, labelled=labelled)
    spec = through_json(before.spec)
    assert (spec.source, spec.split, spec.images, spec.parts) == (str(photos), split, len(before), ())
    assert spec.fingerprint == fingerprint(before)
    assert same(spec.load(preparation=Preparation(8)), before)


def test_a_folder_that_is_taken_as_it_is_is_loaded_again(photos: Path) -> None:
    before = ImageSet.from_folder(photos, 8, mirror=False)
    again = through_json(before.spec).load(preparation=Preparation(8))
    assert before.classes == again.classes == ("train", "val") and not again.mirror
    assert fingerprint(again) == fingerprint(before)


def test_a_npy_file_is_loaded_again_whatever_the_split(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", images(5, size=8))
    before = load(tmp_path / "images.npy", "train", size=8)
    assert before.spec.split == "" and same(through_json(before.spec).load(preparation=Preparation(8)), before)


def test_a_catalogue_set_is_loaded_again_by_its_name() -> None:
    before = load("digits", "val")
    assert before.name == before.spec.source == "digits"
    assert same(through_json(before.spec).load(), before)


def test_parts_of_parts_are_drawn_again() -> None:
    whole = load("digits", "train")
    rest = whole.split(0.1, seed=3)[1]
    some = rest.split(200, seed=5)[0]
    assert some.spec.parts == (Part("rest", 101, 3), Part("first", 200, 5))
    assert same(through_json(some.spec).load(), some)
    assert same(through_json(rest.spec).load(), rest)


def test_a_part_says_of_how_many_it_is_and_knows_the_name_of_the_whole() -> None:
    whole = load("digits", "train")
    rest = whole.split(0.1)[1]
    assert rest.name == "digits (train; 909 of 1,010)"
    assert rest.subset([3, 1]).name == "digits (train; 2 of 1,010)" == str(rest.subset([3, 1]).spec)
    assert {each.whole_name for each in (whole, rest, rest.subset([3, 1]))} == {"digits"}
    array = ImageSet.from_array(images(4, size=8), name="photos (old)")
    assert array.split(1)[1].name == "photos (old) (3 of 4)" and array.split(1)[1].whole_name == "photos (old)"
    assert array.resized(4).split(1)[1].subset([0]).name == "photos (old) (1 of 4)"
    assert array.subset(range(4)) is array


def test_what_is_no_longer_there_cannot_be_loaded_again(photos: Path) -> None:
    spec = load(photos, "train", size=8).spec
    write_png(photos / "train" / "a" / "0.png", images(1, size=8, seed=9)[0])
    expected, found = f"expected 8 images with the fingerprint {spec.fingerprint}", "but found 8 with"
    with pytest.raises(MacsError, match=f"{expected}, {found} [0-9a-f]{{12}} at 8 x 8 pixels"):
        spec.load(preparation=Preparation(8))
    shutil.rmtree(photos / "train" / "a")
    with pytest.raises(MacsError, match="but found 4 with"):
        spec.load(preparation=Preparation(8))
    shutil.rmtree(photos)
    with pytest.raises(MacsError, match="There is no file or folder"):
        spec.load(preparation=Preparation(8))


def test_images_from_nowhere_and_images_chosen_by_hand_cannot_be_loaded_again() -> None:
    array = ImageSet.from_array(images(5, size=8))
    assert array.spec == DataSpec("memory", images=5, whole=5, fingerprint=fingerprint(array))
    with pytest.raises(MacsError, match="5 images were made in memory"):
        through_json(array.spec).load()
    chosen = load("digits", "val").subset([4, 2])
    assert chosen.spec.parts[0].positions and chosen.spec != load("digits", "val").subset([2, 4]).spec
    with pytest.raises(MacsError, match=r"digits \(val; 2 of 145\) were chosen by hand"):
        through_json(chosen.spec).load()


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "needs the setting source"),
        ([], "not \\[\\]"),
        ({"source": 1}, "source must be a string"),
        ({"source": "x", "part": []}, "did you mean 'parts'"),
        ({"source": "x", "parts": 3}, "parts must be a list"),
        ({"source": "x", "parts": [{"side": "last", "count": 1}]}, "side must be one of first, rest, chosen"),
    ],
)
def test_what_is_no_spec_is_refused(told: Any, why: str) -> None:
    with pytest.raises(MacsError, match=why):
        DataSpec.from_dict(told)
