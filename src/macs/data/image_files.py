"""Image files: those below a folder, whose folders may name classes, those in a list, and whatever else a path names.

Every part of macs that reads a folder walks it with this module, so that training, calibration and prediction see the
same images at the same path. A listing is never held in full, however many files there are. A list has on each line the
path of a picture, and its label if it has one:

    cat/1.jpg 0            labels are class numbers, counted from 0; -1 means that no picture has a label
    cat/1.jpg,tabby cat    or class names, after a space, a tab, a comma or a semicolon
    cat/1.jpg              or none at all

`find_images` yields the images of files, folders, globs, .npy files, shards and URLs, one after the other.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import input_file, is_url, kind_of, reason, user_path
from macs.core.registry import quoted
from macs.data.pixels import Pixels, picture
from macs.data.preparation import SUFFIXES, Preparation, Undecodable
from macs.data.stores import SHARDS, content_of, found_in, pictures_in, store_of

T = TypeVar("T")

SORTED = 10_000  # entries that are held and sorted at a time; smaller folders are fully sorted


class FoundFile(NamedTuple):
    """An image file; or a folder that cannot be listed, with the reason as a sentence."""

    path: Path
    trouble: str = ""


def walk(folder: Path) -> Iterator[FoundFile]:
    """Return every image below a folder; hidden files are skipped, and links are followed unless they lead back up."""
    return (FoundFile(folder / name, trouble) for name, trouble in walk_names(folder))


def walk_names(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the same as pairs of a relative name, with / as separator, and a trouble: a million take a few seconds."""
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
    """Return the names of the folders directly inside a folder, except those that `walk` would not enter."""
    start = os.path.realpath(folder)
    inner = (entry.name for entry in entries(folder) if is_folder(entry))
    return sorted(name for name in inner if not leads_up(os.path.realpath(folder / name), start))


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder that are not hidden, sorted in pieces of SORTED."""
    with os.scandir(folder) as listing:
        for piece in in_batches(listing, SORTED):
            yield from sorted((entry for entry in piece if entry.name[0] != "."), key=lambda entry: entry.name)


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that cannot be followed: the error comes when it is read
        return False


def leads_up(inner: str, start: str) -> bool:
    """Return whether a folder is the one we started from, or contains it."""
    return Path(start).is_relative_to(inner)


def in_batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def printable_name(path: str | Path) -> str:
    """Return a name that can be written as UTF-8; bytes and characters that cannot become \\x.. or \\u...."""
    if isinstance(path, str) and path.isascii():
        return path  # the same object: no second copy of a million names
    try:
        return os.fsencode(path).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # no file has such a name, but a user may still write it
        return str(path).encode("utf-8", "backslashreplace").decode()


def images_under(folder: Path) -> list[str]:
    """Return paths of the images below a folder, relative to it, all sorted together."""
    names = []
    for name, trouble in walk_names(folder):
        if trouble:
            raise MacsError(f"{trouble.rstrip('.')}; make it readable, or move it away.")
        names.append(name)
    if not names:
        raise MacsError(f"The folder {folder} holds no images ({', '.join(SUFFIXES)}); check the path.")
    return sorted(names)


def labels_by_folder(folder: Path, names: Sequence[str]) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Return labels from the folders directly inside, one class per folder; None if no image lies in such a folder."""
    flat = [name for name in names if "/" not in name]
    if len(flat) == len(names):
        return None, ()
    if flat:
        raise MacsError(
            f"{folder / flat[0]} lies beside the class folders of {folder}, so its class is unknown; "
            "move it into one of them, or away."
        )
    label_of = {name: label for label, name in enumerate(folders_in(folder))}
    labels = np.array([label_of[name.split("/", 1)[0]] for name in names], np.int64)
    return labels, tuple(map(printable_name, label_of))


CLASSES = "classes.txt"  # the file beside a list that names the classes, one per line

# A path may contain spaces and commas, so it ends with the last suffix of an image; the label is what comes after it.
_SUFFIX = "|".join(suffix[1:] for suffix in SUFFIXES)
_LINE = re.compile(rf"\"?(.*\.(?:{_SUFFIX}))\"?(?:\s*[\s,;]\s*(.*))?", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class ImageList:
    """The lines of a list: paths as they are written, and labels as text; no labels if the list has none."""

    file: Path
    paths: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def read(cls, file: str | Path) -> "ImageList":
        path = input_file(file, "image list")
        paths: list[str] = []
        labels: list[str] = []
        for i, line in enumerate(lines_of(path)):
            match = _LINE.fullmatch(line)
            if not match:
                raise wrong(path, i, f"holds {quoted(line)}; write the path of an image ({', '.join(SUFFIXES)}) there")
            label = sys.intern(match[2] or "")
            if i and kind_of_label(label) != kind_of_label(labels[0]):
                first, here = (f"{kind_of_label(text)} ({text or 'none'})" for text in (labels[0], label))
                raise wrong(path, i, f"has {here} as its label, but line 1 has {first}; use one kind for all")
            paths.append(match[1])
            labels.append(label)
        if not paths:
            raise MacsError(f"The image list {path} is empty; write one image on each line.")
        return cls(path, tuple(paths), tuple(labels) if labels[0] and set(labels) != {"-1"} else ())

    def check_files(self, base: Path) -> None:
        """Refuse a list that names a missing file."""
        start = f"{base}{os.sep}"  # joining a million Paths would take longer than looking at the files
        for i, path in enumerate(self.paths):
            if not os.access(start + path, os.F_OK) and not (base / path).exists():  # an absolute path fails the first
                raise wrong(self.file, i, f"names {base / path}, which is not there; check the path and its root")

    def numbered(self, classes: Sequence[str] = ()) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
        """Return labels as class numbers, and the names of the classes; `classes` gives these and their order."""
        names = tuple(classes) or self.class_names_beside()
        if not self.labels:
            return None, names
        if kind_of_label(self.labels[0]) == "a number":
            labels = np.array([int(label) if len(label) < 10 else 10**9 for label in self.labels], np.int64)
            names = names or tuple(map(str, range(min(int(labels.max()), 10**6) + 1)))
            self._refuse((labels < 0) | (labels >= len(names)), f"is not in 0 to {len(names) - 1}")
            return labels, names
        names = names or tuple(sorted(set(self.labels)))
        number = {name: i for i, name in enumerate(names)}
        labels = np.array([number.get(label, -1) for label in self.labels], np.int64)
        self._refuse(labels < 0, f"is not one of the {len(names):,} classes")
        return labels, names

    def _refuse(self, wrong_ones: NDArray[np.bool_], why: str) -> None:
        if wrong_ones.any():
            i = int(wrong_ones.argmax())
            raise wrong(self.file, i, f"has the label {quoted(self.labels[i])}, which {why}; correct it")

    def class_names_beside(self) -> tuple[str, ...]:
        """Return the lines of classes.txt in the list's folder; none if there is no such file."""
        file = self.file.parent / CLASSES
        return tuple(lines_of(file)) if kind_of(file) == "a file" else ()


def base_of(file: Path, folders: Sequence[Path]) -> Path:
    """Return the folder that a list's paths start from: the first that holds its first picture, else the first."""
    with input_file(file, "image list").open(encoding="utf-8-sig", errors="replace") as lines:
        match = _LINE.fullmatch(lines.readline().strip())
    return next((folder for folder in folders if match and (folder / match[1]).exists()), folders[0])


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a text file, stripped; an empty line is refused."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for i, line in enumerate(map(str.strip, lines)):
                if not line:
                    raise wrong(file, i, "is empty; remove it")
                yield line
    except UnicodeDecodeError:
        raise MacsError(f"Cannot read {file}: it is not text in UTF-8.") from None
    except OSError as error:
        raise MacsError(f"Cannot read {file}: {reason(error)}.") from None


def kind_of_label(label: str) -> str:
    return "a number" if _NUMBER.fullmatch(label) else "text" if label else "nothing"


def wrong(file: Path, i: int, what: str) -> MacsError:
    return MacsError(f"Line {i + 1:,} of {file} {what}.")


@dataclass(frozen=True)
class Item:
    """The name of an image, and a function that reads its pixels or raises a MacsError."""

    name: str
    read: Callable[[Preparation], NDArray[np.uint8]]


def find_images(paths: str | Path | Iterable[str | Path]) -> Iterator[Item]:
    """Every image that the paths name. A path without images gives an item whose `read` raises the reason."""
    for path in map(str, [paths] if isinstance(paths, str | Path) else paths):
        yield from _or_failure(path, _items(path))


def listed_images(urls: Iterable[str]) -> Iterator[Item]:
    """The images at URLs that come from a listing: each is a file, neither looked up again nor taken for a glob."""
    for url in urls:
        yield from _or_failure(url, _remote(url))


def _or_failure(path: str, items: Iterable[Item]) -> Iterator[Item]:
    """The items of a path, or the reason why there are none."""
    any_images = False
    try:
        for item in items:
            any_images = True
            yield item
    except MacsError as error:
        yield _failure(path, str(error))
    else:
        if not any_images:
            yield _failure(path, f"There are no images at {path} ({', '.join(SUFFIXES)}); check the path.")


def _items(path: str) -> Iterator[Item]:
    if is_url(path):
        for url in found_in(store_of(path)):
            yield from _remote(url)
        return
    whole = user_path(path)
    if not os.path.lexists(whole) and any(sign in path for sign in "*?["):
        wild = next(i for i, part in enumerate(whole.parts) if any(sign in part for sign in "*?["))
        for match in _matches(Path(*whole.parts[:wild]), whole.parts[wild:]):
            yield from _items_at(match)
    else:
        yield from _items_at(whole)


def _items_at(path: Path) -> Iterator[Item]:
    try:
        if kind_of(path) == "a folder":
            for image, trouble in walk(path):
                yield _failure(image, trouble) if trouble else _picture(image)
        elif path.suffix == ".npy":
            yield from _rows(path)
        elif path.suffix in SHARDS:
            yield from _remote(str(path))
        else:
            yield _picture(path)
    except MacsError as error:
        yield _failure(path, str(error))


def _matches(folder: Path, pattern: tuple[str, ...]) -> Iterator[Path]:
    """The files and folders that match a glob, where ** is any number of folders; glob.glob would hold them all."""
    if not pattern:
        yield folder
        return
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        yield from _matches(folder, rest)
    try:
        for entry in entries(folder):
            if first == "**":
                if rest and is_folder(entry) and not entry.is_symlink():
                    yield from _matches(folder / entry.name, pattern)
            elif fnmatchcase(entry.name, first) and (not rest or is_folder(entry)):
                yield from _matches(folder / entry.name, rest)
    except PermissionError:  # there may be matches inside, so the folder becomes an item that fails
        if first != "**":  # the pattern after ** has already given it
            yield folder
    except OSError:
        return


def _picture(path: Path) -> Item:
    return Item(printable_name(path), lambda preparation: preparation.read(path))


def _remote(url: str) -> Iterator[Item]:
    """The image at a URL, or those in a shard; an image of its own is fetched by the thread that decodes it."""
    if url.lower().endswith(SHARDS):
        try:
            for name, content in pictures_in(url):
                yield Item(name, partial(_decoded, content, name))
        except MacsError as error:
            yield _failure(url, str(error))
    else:
        yield Item(url, lambda preparation: _decoded(content_of(url), url, preparation))


def _decoded(content: bytes, name: str, preparation: Preparation) -> NDArray[np.uint8]:
    try:
        return preparation.decode(content)
    except Undecodable as error:
        raise error.of(name) from None


def _rows(path: Path) -> Iterator[Item]:
    """The images of a .npy file, named by their position."""
    from macs.data.readers import read_npy

    images = read_npy(path)
    for i in range(len(images)):
        yield Item(f"{printable_name(path)}[{i}]", partial(_row, images, i))


def _row(images: Pixels, i: int, preparation: Preparation) -> NDArray[np.uint8]:
    if images.shape[1:3] == (preparation.size, preparation.size):  # counts as prepared, as in `predict`
        row: NDArray[np.uint8] = images[i : i + 1][0]
        return row
    return preparation(picture(images, i))


def _failure(path: str | Path, reason: str) -> Item:
    def refuse(preparation: Preparation) -> NoReturn:
        raise MacsError(reason)

    return Item(printable_name(path), refuse)
