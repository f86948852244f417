"""From the name of a dataset, or a path, to its images."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import input_folder, kind_of, user_path
from macs.core.registry import unknown
from macs.data.catalog import catalog
from macs.data.dataset import Dataset, Role
from macs.data.folder import Progress
from macs.data.imageset import ImageSet
from macs.data.pictures import check_size
from macs.data.readers import read_npy
from macs.data.spec import DataSpec
from macs.data.walking import printable_name

SPLITS = ("train", "val", "test")


def data_root(path: str | Path | None = None) -> Path:
    """The folder that holds the datasets: the one given, else $MACS_DATA, else the user's cache folder."""
    given = os.environ.get("MACS_DATA") if path is None else path
    if given is None:
        import pooch

        return Path(pooch.os_cache("macs"))
    hint = "name the folder of the datasets with --data or $MACS_DATA"
    if not str(given).strip():
        raise MacsError(f"The data root is an empty text; {hint}.")
    folder = user_path(given)
    return folder if kind_of(folder) is None else input_folder(folder, hint)  # `macs data get` makes a new one


def available() -> list[str]:
    """The datasets that `load` knows by name."""
    return catalog.available()


def load(
    spec: str | Path,
    split: str = "test",
    root: str | Path | None = None,
    size: int = 32,
    progress: Progress | None = None,
    *,
    labelled: bool = True,
) -> ImageSet:
    """The images of a dataset of the catalogue, of a .npy file, or of a folder, at `size` x `size`.

    A folder with train, val or test inside is read from the one that `split` names; any other folder and a .npy file
    are one set, whatever the split. The folders inside it are the classes, unless `labelled` is False, as is right for
    outliers: then images may lie anywhere. An empty `split` takes a folder as it is, divided or not. `progress(done,
    total)` hears of images as they are decoded. The set is named by its spec, so that its name loads it again.
    """
    images = _load(spec, split, root, check_size(size), progress, labelled)
    divided = spec in available() or splits_of(spec)
    origin = DataSpec(printable_name(spec), split if divided else "", labelled=labelled)
    return replace(images, name=str(spec), origin=origin)


def _load(
    spec: str | Path, split: str, root: str | Path | None, size: int, progress: Progress | None, labelled: bool
) -> ImageSet:
    path = user_path(spec)
    named = isinstance(spec, str) and spec in available()
    kind = None if named else kind_of(path)
    if isinstance(spec, str) and (named or (":" in spec and kind is None)):
        entry = catalog[spec]
        if not isinstance(entry, Dataset):
            raise MacsError(f"{spec} is no dataset; decorate its reader with @macs.data.catalog.dataset(...).")
        return entry.read(data_root(root), split, size, progress)
    if kind is not None and split not in ("", *SPLITS):
        raise unknown("split", split, list(SPLITS))
    if kind == "a folder":
        folder = inside(path, split)
        images = ImageSet.from_folder(folder, size, labelled=labelled, progress=progress)
        if split == "train" and images.labels is not None:
            check_classes(folder, images.classes, images.labels)
        return images
    if kind is not None and path.suffix == ".npy":
        return ImageSet(path.name, read_npy(path)).resized(size)
    if kind is not None:
        raise MacsError(f"Cannot load {path}: give a folder of images, a .npy file or the name of a dataset.")
    if isinstance(spec, Path) or len(path.parts) > 1 or path.suffix:
        raise MacsError(f"There is no file or folder {path}; check the path, or name one of: {', '.join(available())}.")
    raise unknown("dataset", spec, available())


def check_classes(folder: Path, classes: Sequence[str], labels: NDArray[np.int64]) -> None:
    """Refuse a class to train on that has no images: the network would have an output that it never learns."""
    counts = np.bincount(labels, minlength=len(classes))
    if not counts.all():
        empty = folder / classes[int(counts.argmin())]
        raise MacsError(f"The class folder {empty} holds no images to train on; fill it, or remove it.")


def splits_of(folder: str | Path) -> list[str]:
    """The splits that a folder is divided into; none if it is not, or is no folder."""
    return [name for name in SPLITS if kind_of(user_path(folder) / name) == "a folder"]


def inside(folder: Path, split: str) -> Path:
    """The folder of a split, where a folder is divided into splits: never train and test images together."""
    splits = splits_of(folder)
    if not splits or not split:
        return folder
    if split not in splits:
        raise MacsError(
            f"The folder {folder} is divided into {', '.join(splits)} and has no {split}; name one of these."
        )
    return folder / split


def undivided(spec: str) -> bool:
    """Whether this names a folder without splits: a network trained on it has seen all of its images."""
    return spec not in available() and kind_of(user_path(spec)) == "a folder" and not splits_of(spec)


def has_validation(spec: str) -> bool:
    """Whether a dataset of the catalogue, or a folder, has a validation split."""
    return "val" in (catalog[spec].splits if spec in available() else splits_of(spec))


def load_unseen(
    spec: str, split: str | None = None, root: str | Path | None = None, size: int = 32, *, labelled: bool = True
) -> ImageSet:
    """Images to calibrate on: the split named, else the validation images, else the test images.

    Where there are splits, the name says which of them these are.
    """
    part = split or ("val" if has_validation(spec) else "test")
    images = load(spec, part, root=root, size=size, labelled=labelled)
    return replace(images, name=f"{images.name}{images.origin.note(len(images))}" if images.origin else images.name)


@dataclass(frozen=True)
class Row:
    """A line of `macs data list`."""

    name: str
    title: str
    role: Role
    images: dict[str, int]  # the official number in each split
    found: tuple[str, ...]  # the splits that are there
    home: str
    licence: str
    citation: str


def catalog_rows(root: str | Path | None = None) -> list[Row]:
    """What there is, and what of it is in the data folder."""
    folder = data_root(root)
    return [row(catalog[name], folder) for name in available()]


def row(entry: Dataset, folder: Path) -> Row:
    images = {split: part.images for split, part in entry.splits.items()}
    found = tuple(split for split in entry.splits if entry.installed() and entry.find(folder, split) is not None)
    return Row(entry.name, entry.title, entry.role, images, found, entry.home, entry.licence, entry.citation)
