"""Which images files, folders and globs mean, against what the standard library finds."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from macs.core.errors import MacsError
from macs.data import image_files
from macs.data.image_files import find_images, in_batches
from macs.data.preparation import Preparation


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.png", "a.jpg", "c/d.PNG", "c/e/f.webp", "c/e/g.png", "c1/h.png", "notes.txt", ".hidden.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "x.png").touch()
    return tmp_path


def names(*given: object) -> list[str]:
    return [item.name for item in find_images(map(str, given))]


def test_a_folder_means_every_image_below_it_in_order(tree: Path) -> None:
    inside = ["a.jpg", "b.png", "c/d.PNG", "c/e/f.webp", "c/e/g.png", "c1/h.png"]
    assert names(tree) == [str(tree / name) for name in inside]


def test_a_folder_larger_than_a_piece_is_listed_whole(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = names(tree)
    for piece in (1, 2, 3):
        monkeypatch.setattr(image_files, "SORTED", piece)
        assert sorted(names(tree)) == sorted(whole)


def test_a_folder_is_not_listed_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With pieces of 10 and 1,000 files, the first image is there after 10."""
    for i in range(1000):
        (tmp_path / f"{i}.png").touch()
    monkeypatch.setattr(image_files, "SORTED", 10)
    listed = 0
    scandir = os.scandir

    class Counting:
        def __init__(self, folder: Path) -> None:
            self.entries = scandir(folder)

        def __enter__(self) -> "Counting":
            return self

        def __exit__(self, *_: object) -> None:
            self.entries.close()

        def __iter__(self) -> "Counting":
            return self

        def __next__(self) -> os.DirEntry[str]:
            nonlocal listed
            listed += 1
            return next(self.entries)

    monkeypatch.setattr(os, "scandir", Counting)
    next(find_images([tmp_path]))
    assert listed == 10


@pytest.mark.parametrize(
    "pattern", ["*.png", "*", "c*/*.png", "**/*.png", "c/**", "**/e/*", "?.jpg", "[ab].*", "**/g.png"]
)
def test_globs_mean_what_they_mean_to_pathlib(tree: Path, pattern: str) -> None:
    """Hidden files apart, which a shell leaves out and pathlib does not."""
    expected = set()
    for match in tree.glob(pattern):
        if not any(part.startswith(".") for part in match.relative_to(tree).parts):
            expected |= set(names(match)) if match.is_dir() else {str(match)}
    assert set(names(tree / pattern)) == expected


def test_a_name_with_brackets_that_exists_is_no_glob(tmp_path: Path) -> None:
    (tmp_path / "a[1].png").touch()
    (tmp_path / "a1.png").touch()
    assert names(tmp_path / "a[1].png") == [str(tmp_path / "a[1].png")]


def test_what_is_not_there_or_holds_nothing_is_said_when_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = list(find_images([tmp_path / "empty", tmp_path / "gone.png", tmp_path / "*.png"]))
    assert len(found) == 3
    for item in found:
        with pytest.raises(MacsError, match=item.name.replace("*", r"\*")):
            item.read(Preparation(8))


def test_a_link_in_a_circle_ends(tree: Path) -> None:
    (tree / "c" / "up").symlink_to(tree)
    (tree / "broken.png").symlink_to(tree / "nowhere")
    assert len([name for name in names(tree) if "broken" not in name]) == 6
    assert len(names(tree / "**" / "*.png")) == 4


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_utf8_can_be_written(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).touch()
    (name,) = names(tmp_path)
    assert name.encode().endswith(rb"/caf\xe9.png")


def test_an_array_gives_its_images_by_number(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", images)
    found = list(find_images([tmp_path / "x.npy"]))
    assert [item.name for item in found] == [f"{tmp_path / 'x.npy'}[{i}]" for i in range(3)]
    for item, image in zip(found, images, strict=True):
        np.testing.assert_array_equal(item.read(Preparation(12)), image)
    small = np.asarray(Image.fromarray(images[1]).resize((6, 6), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(found[1].read(Preparation(6)), small)
    np.save(tmp_path / "bad.npy", np.zeros((3, 4)))
    (bad,) = find_images([tmp_path / "bad.npy"])
    with pytest.raises(MacsError, match="float64"):
        bad.read(Preparation(8))


@pytest.mark.parametrize(("count", "size"), [(0, 3), (1, 3), (3, 3), (7, 3)])
def test_batches_hold_everything_once(count: int, size: int) -> None:
    batches = list(in_batches(range(count), size))
    assert [x for batch in batches for x in batch] == list(range(count))
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize("path", ["", " ", "a\0b.png", "~nobody-of-that-name/x.png", "x" * 5000, "\ud800.png"])
def test_a_path_that_no_file_can_have_is_an_item_that_says_so(path: str) -> None:
    (item,) = find_images([path])
    item.name.encode()  # can be written
    with pytest.raises(MacsError, match=r"empty|No file can|home folder|too long"):
        item.read(Preparation(8))


def test_one_path_is_one_path_and_not_its_letters(tree: Path) -> None:
    assert [item.name for item in find_images(str(tree / "b.png"))] == [str(tree / "b.png")]
    assert [item.name for item in find_images(tree / "c1")] == [str(tree / "c1" / "h.png")]


@pytest.mark.parametrize("name", ["a.png", "a.npy"])
def test_a_fifo_keeps_nobody_waiting(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    (item,) = find_images([tmp_path / name])
    with pytest.raises(MacsError, match=f"{name} is a FIFO"):
        item.read(Preparation(8))


@pytest.mark.parametrize("pattern", [".", "**/*.png", "*/*.png"])
def test_a_folder_that_may_not_be_read_has_an_item_that_says_so(unprivileged: Path, pattern: str) -> None:
    for name in ("a/1.png", "b/1.png"):
        (unprivileged / name).parent.mkdir()
        (unprivileged / name).touch()
    (unprivileged / "a").chmod(0)
    locked, readable = find_images([unprivileged / pattern])
    assert (locked.name, readable.name) == (str(unprivileged / "a"), str(unprivileged / "b" / "1.png"))
    with pytest.raises(MacsError, match="Permission denied"):
        locked.read(Preparation(8))


def test_folders_may_be_nested_more_deeply_than_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(1500):
        Path("a").mkdir()
        os.chdir("a")
    Path("x.png").touch()
    found = names(tmp_path)
    Path("x.png").unlink()
    for _ in range(1500):  # Python 3.11 cannot remove such a tree at once
        os.chdir("..")
        Path("a").rmdir()
    assert len(found) == 1
