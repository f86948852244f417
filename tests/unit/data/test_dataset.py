"""A dataset of the catalogue, made for the test: which of its layouts is read, and what is said where none is there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data import ImageSet, Preparation
from macs.data.catalog import Dataset, Remote, Source, Split, listed, under
from official import images, write_png


def read(source: Source) -> ImageSet:
    return ImageSet("whatever", np.concatenate([np.load(file) for file in source.files]))


@pytest.fixture
def shapes() -> Dataset:
    layouts = under("new old/place .", "a.npy", "b.npy")
    splits = {"train": Split(6, layouts, Remote("https://host/shapes.tar.gz")), "test": Split(2, (("test.npy",),))}
    return Dataset("shapes", "Shapes", "ood", splits, "https://home", "CC0", "nobody", read, mirror=False)


def save(folder: Any, *names: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        np.save(folder / name, images(3, seed, size=8))


def test_the_first_layout_that_is_whole_is_read(shapes: Any, tmp_path: Path) -> None:
    assert under("new old/place .", "a.npy", "b.npy") == (
        ("new/a.npy", "new/b.npy"),
        ("old/place/a.npy", "old/place/b.npy"),
        ("a.npy", "b.npy"),
    )
    save(tmp_path / "new", "a.npy")
    save(tmp_path / "old/place", "a.npy", "b.npy")
    assert shapes.find(tmp_path, "train") == (tmp_path / "old/place/a.npy", tmp_path / "old/place/b.npy")
    found = shapes.read(tmp_path, "train", Preparation(8))
    np.testing.assert_array_equal(found.pixels[:], np.concatenate([images(3, 0, 8), images(3, 1, 8)]))
    assert (found.name, found.mirror) == ("shapes", False)
    save(tmp_path / "new", "a.npy", "b.npy")
    assert shapes.find(tmp_path, "train") == (tmp_path / "new/a.npy", tmp_path / "new/b.npy")


def test_images_are_prepared_as_is_asked(shapes: Any, tmp_path: Path) -> None:
    save(tmp_path, "test.npy")
    assert shapes.read(tmp_path, "test", Preparation(4)).size == 4


def test_what_is_missing_is_named_with_the_way_to_it(shapes: Any, tmp_path: Path) -> None:
    with pytest.raises(MacsError) as caught:
        shapes.read(tmp_path, "train")
    assert str(caught.value) == (
        f"The train split of shapes is not in {tmp_path}: there is no new/a.npy, b.npy (or old/place/a.npy, a.npy); "
        "get it by `macs data get shapes` or from https://home, "
        "or name the folder that holds it with --data or $MACS_DATA."
    )
    save(tmp_path / "old/place", "b.npy")
    with pytest.raises(MacsError, match=r"there is no old/place/a\.npy \(or new/a\.npy, a\.npy\)"):
        shapes.read(tmp_path, "train")
    with pytest.raises(MacsError, match=r"there is no test\.npy; get it from https://home"):
        shapes.read(tmp_path, "test")


def test_a_split_that_it_has_not_is_named(shapes: Any, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match=r"^shapes has no split 'val'; it has train, test\.$"):
        shapes.read(tmp_path, "val")


def test_a_package_that_its_images_come_with_must_be_there(shapes: Any, tmp_path: Path) -> None:
    save(tmp_path, "test.npy")
    assert replace(shapes, packages=("json",)).read(tmp_path, "test")
    with pytest.raises(MacsError, match="json and no_such_package, which is not installed; run: pip install"):
        replace(shapes, packages=("json", "no_such_package")).read(tmp_path, "test")


def test_a_dataset_without_files_is_always_there(tmp_path: Path) -> None:
    plain = Dataset("plain", "", "id", {"test": Split(1)}, "", "", "", lambda source: ImageSet("x", images(1)))
    assert plain.find(tmp_path / "nowhere", "test") == () and len(plain.read(tmp_path, "test")) == 1


def test_a_reader_may_take_the_folder_that_was_found(tmp_path: Path) -> None:
    for name in ("red/1.png", "blue/2.png"):
        write_png(tmp_path / "photos" / name, images(1, size=8)[0])
    source = Source("test", (tmp_path / "photos",), Preparation(4))
    labelled, plain = source.folder(), source.folder(labelled=False)
    assert (
        labelled.classes == ("blue", "red") and labelled.labels.tolist() == [0, 1] and labelled.size == source.size == 4
    )
    assert plain.classes == () and plain.labels is None


@pytest.mark.parametrize(
    ("url", "name", "archive"),
    [
        ("https://host/a/images.tar.gz", "images.tar.gz", True),
        ("https://host/images.zip?download=1", "images.zip", True),
        ("http://host/train_32x32.mat", "train_32x32.mat", False),
    ],
)
def test_a_file_is_called_as_its_authors_call_it(url: Any, name: Any, archive: Any) -> None:
    assert (Remote(url).name, Remote(url).archive) == (name, archive)


def test_a_common_folder_is_said_once() -> None:
    assert listed(["a/b/1", "a/b/2", "c/3"]) == "a/b/1, 2, c/3"
