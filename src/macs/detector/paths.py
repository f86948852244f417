"""Files, folders, globs and .npy files -> images one after the other, however many there are.

A folder is listed piece by piece and never held as a whole, so a million files take no more memory than a thousand.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.pictures import SUFFIXES, fit, read_picture
from macs.data.pixels import Pixels

T = TypeVar("T")

SORTED = 10_000  # entries of a folder that are held and sorted at a time: smaller folders come out in order


@dataclass(frozen=True)
class Item:
    """What to call an image, and how to get its pixels at a size; `read` raises MacsError if that fails."""

    name: str
    read: Callable[[int], NDArray[np.uint8]]


def find_images(paths: Iterable[str | Path]) -> Iterator[Item]:
    """Every image that the paths name. What is not there, or holds none, is an item that says so when it is read."""
    for path in paths:
        found = False
        for item in _items(str(path)):
            found = True
            yield item
        if not found:
            yield _failure(str(path), f"There are no images at {path} ({', '.join(SUFFIXES)}); check the path.")


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def _items(path: str) -> Iterator[Item]:
    whole = Path(path).expanduser()
    if not os.path.lexists(whole) and any(sign in path for sign in "*?["):
        wild = next(i for i, part in enumerate(whole.parts) if any(sign in part for sign in "*?["))
        for match in _matches(Path(*whole.parts[:wild]), whole.parts[wild:]):
            yield from _items_at(match)
    else:
        yield from _items_at(whole)


def _items_at(path: Path) -> Iterator[Item]:
    if path.is_dir():
        yield from _items_in(path, frozenset())
    elif path.suffix == ".npy":
        yield from _rows(path)
    else:
        yield Item(_printable(path), partial(read_picture, path))


def _items_in(folder: Path, above: frozenset[str]) -> Iterator[Item]:
    """The images below a folder; a link to a folder above it is not followed, or it would never end."""
    here = os.path.realpath(folder)
    if here in above:
        return
    try:
        for entry in _entries(folder):
            path = folder / entry.name
            if _is_folder(entry):
                yield from _items_in(path, above | {here})
            elif path.suffix.lower() in SUFFIXES:
                yield Item(_printable(path), partial(read_picture, path))
    except OSError as error:
        yield _failure(_printable(folder), f"Cannot list the folder {folder}: {error.strerror or error}.")


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What is in a folder but not hidden; sorted, in pieces."""
    with os.scandir(folder) as entries:
        for piece in in_batches(entries, SORTED):
            yield from sorted((entry for entry in piece if entry.name[0] != "."), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed: reading it will say why
        return False


def _matches(folder: Path, pattern: tuple[str, ...]) -> Iterator[Path]:
    """The files and folders that a glob means; ** stands for any number of folders. glob.glob would list them all."""
    if not pattern:
        yield folder
        return
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        yield from _matches(folder, rest)
    try:
        for entry in _entries(folder):
            if first == "**":
                if rest and _is_folder(entry) and not entry.is_symlink():
                    yield from _matches(folder / entry.name, pattern)
            elif fnmatchcase(entry.name, first) and (not rest or _is_folder(entry)):
                yield from _matches(folder / entry.name, rest)
    except OSError:
        return


def _rows(path: Path) -> Iterator[Item]:
    """The images of a .npy file, named by their position."""
    from macs.data.readers import read_npy

    try:
        images = read_npy(path)
    except MacsError as error:
        yield _failure(_printable(path), str(error))
        return
    for i in range(len(images)):
        yield Item(f"{_printable(path)}[{i}]", partial(_row, images, i))


def _row(images: Pixels, i: int, size: int) -> NDArray[np.uint8]:
    from PIL import Image

    return fit(Image.fromarray(images[i : i + 1][0]), size)


def _failure(name: str, reason: str) -> Item:
    def refuse(size: int) -> NoReturn:
        raise MacsError(reason)

    return Item(name, refuse)


def _printable(path: Path) -> str:
    """A name that can be written as UTF-8; bytes of a name that cannot are shown as \\x.."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
