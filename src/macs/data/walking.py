"""The images below a folder, one at a time: a listing is never held in full, however many files there are.

Every part of macs that reads a folder walks it with this module, so that training, calibration and prediction see the
same images at the same path.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from macs.core.files import reason
from macs.data.pictures import SUFFIXES

T = TypeVar("T")

SORTED = 10_000  # entries that are held and sorted at a time; smaller folders are fully sorted


class FoundFile(NamedTuple):
    """An image file; or a folder that cannot be listed, with the reason as a sentence."""

    path: Path
    trouble: str = ""


def walk(folder: Path) -> Iterator[FoundFile]:
    """Every image below a folder; hidden files are skipped, and links are followed unless they lead back up."""
    return (FoundFile(folder / name, trouble) for name, trouble in walk_names(folder))


def walk_names(folder: Path) -> Iterator[tuple[str, str]]:
    """The same as pairs of a relative name, with / as separator, and a trouble: a million take a few seconds."""
    start = os.path.realpath(folder)
    levels = {start: ("", entries(folder))}  # from the top folder down to the current one, by their real paths
    while levels:
        current = next(reversed(levels))
        above, rest = levels[current]
        try:
            entry = next(rest, None)
        except OSError as error:
            yield above, f"Cannot list the folder {folder / above}: {reason(error)}."
            entry = None
        if entry is None:
            levels.popitem()
        elif is_folder(entry):
            inner = os.path.realpath(entry.path) if entry.is_symlink() else str(Path(current, entry.name))
            if inner not in levels and not leads_up(inner, start):
                levels[inner] = (f"{above}{entry.name}/", entries(folder / above / entry.name))
        elif entry.name.lower().endswith(SUFFIXES):
            yield above + entry.name, ""


def folders_in(folder: Path) -> list[str]:
    """The names of the folders directly inside a folder, except those that `walk` would not enter."""
    start = os.path.realpath(folder)
    inner = (entry.name for entry in entries(folder) if is_folder(entry))
    return sorted(name for name in inner if not leads_up(os.path.realpath(folder / name), start))


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder that are not hidden, sorted in pieces of SORTED."""
    with os.scandir(folder) as listing:
        for piece in in_batches(listing, SORTED):
            yield from sorted((entry for entry in piece if entry.name[0] != "."), key=lambda entry: entry.name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed: the error comes when it is read
        return False


def leads_up(inner: str, start: str) -> bool:
    """Whether a folder is the one we started from, or contains it."""
    return Path(start).is_relative_to(inner)


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def printable_name(path: str | Path) -> str:
    """A name that can be written as UTF-8; bytes and characters that cannot become \\x.. or \\u...."""
    if isinstance(path, str) and path.isascii():
        return path  # the same object: no second copy of a million names
    try:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # no file has such a name, but a user may still write it
        return str(path).encode("utf-8", "backslashreplace").decode()
