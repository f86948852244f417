"""Lists of image files: what they say, and what is wrong with them, line by line."""

import json
from pathlib import Path

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data import DataSpec, ImageSet, Preparation, load
from official import images, write_png

NAMES = ("cat/1.png", "cat/two words.png", "dog/3,5.png", "dog/4.PNG")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A folder with four pictures; the tests write lists into it."""
    for name, pixels in zip(NAMES, images(4, size=8), strict=True):
        write_png(tmp_path / name, pixels)
    return tmp_path


def written(folder: Path, text: str, name: str = "list.txt") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


@pytest.mark.parametrize("between", [" ", "\t", ",", ", ", "; ", "   "])
@pytest.mark.parametrize(
    ("labels", "numbers", "classes"),
    [
        (("0", "0", "2", "1"), [0, 0, 2, 1], ("0", "1", "2")),
        (("tabby cat", "tabby cat", "dog", "cow"), [2, 2, 1, 0], ("cow", "dog", "tabby cat")),
    ],
)
def test_paths_and_labels(
    listed: Path, between: str, labels: tuple[str, ...], numbers: list[int], classes: tuple[str, ...]
) -> None:
    lines = [f"{name}{between}{label}" for name, label in zip(NAMES, labels, strict=True)]
    read = ImageSet.from_list(written(listed, "\n".join(lines) + "\n"), size=8)
    assert read.files == NAMES and read.labels.tolist() == numbers and read.classes == classes
    np.testing.assert_array_equal(read.pixels[:], images(4, size=8))


def test_paths_alone_and_labels_of_minus_one_are_a_set_without_labels(listed: Path) -> None:
    for after in ("", " -1"):
        read = ImageSet.from_list(written(listed, "".join(f"{name}{after}\r\n" for name in NAMES)), size=8)
        assert read.labels is None and read.files == NAMES
    assert ImageSet.from_list(written(listed, "dog/4.PNG cat"), labelled=False).labels is None


def test_quotes_a_byte_order_mark_and_absolute_paths(listed: Path) -> None:
    text = f'\ufeff"dog/3,5.png",1\n{listed}/cat/1.png,0\n'
    read = ImageSet.from_list(written(listed, text), size=8)
    assert read.files == ("dog/3,5.png", f"{listed}/cat/1.png") and read.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cat/1.png 0\n\ndog/4.PNG 1\n", r"Line 2 of .*list\.txt is empty"),
        ("cat/1.png 0\ndog/9.png 1\n", r"Line 2 of .*list\.txt names .*dog/9\.png, which is not there"),
        ("cat/1.png 0\ndog/4.PNG dog\n", r"Line 2 .* has text \(dog\) as its label, but line 1 has a number \(0\)"),
        ("cat/1.png cat\ndog/4.PNG 1\n", r"Line 2 .* has a number \(1\) as its label, but line 1 has text \(cat\)"),
        ("cat/1.png\ndog/4.PNG 1\n", r"Line 2 .* has a number \(1\) as its label, but line 1 has nothing \(none\)"),
        ("cat/1.png -1\ndog/4.PNG 1\n", r"Line 1 .* has the label '-1', which is not in 0 to 1"),
        ("path,label\ncat/1.png,0\n", r"Line 1 .* holds 'path,label'; write the path of an image"),
        ("cat/1.png 0\ndog/4.PNG 99999999999999999999\n", r"Line 2 .* has the label '9{20}', which is not in 0 to"),
        ("", "The image list .* is empty"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(listed: Path, text: str, why: str) -> None:
    with pytest.raises(MacsError, match=why):
        ImageSet.from_list(written(listed, text))


def test_a_list_that_is_not_text_is_named(listed: Path) -> None:
    (listed / "list.txt").write_bytes(b"caf\xe9.png 0\n")
    with pytest.raises(MacsError, match=r"list\.txt: it is not text in UTF-8"):
        ImageSet.from_list(listed / "list.txt")
    with pytest.raises(MacsError, match=r"There is no image list at .*gone\.txt"):
        ImageSet.from_list(listed / "gone.txt")


def test_a_file_beside_the_list_names_the_classes(listed: Path) -> None:
    (listed / "classes.txt").write_text("dog\ncat\nhorse\n")
    for text in ("cat/1.png cat\n", "cat/1.png 1\n"):
        read = ImageSet.from_list(written(listed, text))
        assert read.classes == ("dog", "cat", "horse") and read.labels.tolist() == [1]
    with pytest.raises(MacsError, match="Line 1 .* has the label 'cow', which is not one of the 3 classes"):
        ImageSet.from_list(written(listed, "cat/1.png cow"))
    assert ImageSet.from_list(listed / "list.txt", classes=("cow",)).classes == ("cow",)
    with pytest.raises(MacsError, match="class of .* called dog holds no images to train on"):
        load(written(listed, "cat/1.png cat\n"), "train")


def test_the_paths_start_from_the_root_the_lists_folder_or_the_data_root(listed: Path, tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    file = written(tmp_path / "lists", "cat/1.png 0\ndog/4.PNG 1\n")
    with pytest.raises(MacsError, match="Line 1 .* which is not there"):
        load(file)
    by_data_root = load(file, size=8, root=listed)
    by_root = ImageSet.from_list(file, size=8, root=listed)
    np.testing.assert_array_equal(by_data_root.pixels[:], by_root.pixels[:])
    for before, root in ((by_root, None), (by_data_root, listed)):
        spec = DataSpec.from_dict(json.loads(json.dumps(before.spec.as_dict())))
        again = spec.load(root, preparation=Preparation(8))
        np.testing.assert_array_equal(again.pixels[:], before.pixels[:])
        assert again.labels.tolist() == [0, 1] and again.spec == before.spec
