"""Every image below a folder, as os.walk finds it; `test_image_files.py` has what users name on top of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from macs.data.image_files import folders_in, in_batches, printable_name, walk

NAMES = [
    "b.png",
    "a.JPG",
    "a/z.png",
    "a/.cache/x.png",
    ".hidden/y.png",
    ".z.png",
    "notes.txt",
    "c/d/e/f.webp",
    "a.png/g.png",
]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_images_are_those_that_a_walk_over_the_visible_finds(tree: Any) -> None:
    expected = set()
    for folder, inside, files in os.walk(tree):
        inside[:] = [name for name in inside if not name.startswith(".")]
        expected |= {Path(folder, name) for name in files if not name.startswith(".") and not name.endswith(".txt")}
    found = [each.path for each in walk(tree)]
    assert set(found) == expected and len(found) == len(expected)
    assert found == [*walk_sorted(tree)] and not any(each.trouble for each in walk(tree))


def walk_sorted(folder: Path) -> Any:
    """Entries in the order of their names, each folder where its name stands."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from walk_sorted(entry)
        elif entry.suffix != ".txt":
            yield entry


def test_links_are_followed_unless_they_lead_back_up(tree: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "there.png").touch()
    (tree / "c/out").symlink_to(elsewhere)
    for name, target in (("up", tree), ("above", tree.parent), ("itself", tree / "c")):
        (tree / "c" / name).symlink_to(target)
    found = [each.path.relative_to(tree).as_posix() for each in walk(tree / "c")]
    assert found == ["c/d/e/f.webp", "c/out/there.png"]
    assert folders_in(tree / "c") == ["d", "out"] and folders_in(tree) == ["a", "a.png", "c"]


def test_a_folder_that_cannot_be_listed_is_found_with_the_reason(unprivileged: Any) -> None:
    for name in ("a/1.png", "b/2.png"):
        (unprivileged / name).parent.mkdir()
        (unprivileged / name).touch()
    (unprivileged / "a").chmod(0)
    locked, seen = walk(unprivileged)
    assert locked == (unprivileged / "a", f"Cannot list the folder {unprivileged / 'a'}: Permission denied.")
    assert seen == (unprivileged / "b/2.png", "")


def test_batches_are_taken_no_sooner_than_they_are_needed() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(7):
            taken.append(i)
            yield i

    batches = in_batches(numbers(), 3)
    assert taken == [] and next(batches) == [0, 1, 2] and taken == [0, 1, 2]
    assert list(batches) == [[3, 4, 5], [6]]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("é.png", "é.png"), (os.fsdecode(b"caf\xe9.png"), r"caf\xe9.png"), ("\ud800.png", r"\ud800.png")],
)
def test_any_name_can_be_written(name: Any, shown: Any) -> None:
    assert printable_name(name) == shown and printable_name(name).encode()
