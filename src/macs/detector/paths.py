"""Files, folders, globs, .npy files, shards and URLs -> images, one after the other.

A folder is listed piece by piece, so that a million files take no more memory than a thousand.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import is_url, kind_of, user_path
from macs.data.image_files import entries, is_folder, printable_name, walk
from macs.data.pixels import Pixels, picture
from macs.data.preparation import SUFFIXES, Preparation, Undecodable
from macs.data.stores import SHARDS, content_of, found_in, pictures_in, store_of


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
