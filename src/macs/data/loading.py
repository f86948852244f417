"""From the name of a dataset, or a path, to its images."""

import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from macs.core.console import timed, warn
from macs.core.errors import MacsError
from macs.core.files import input_folder, kind_of, user_cache, user_path
from macs.core.registry import unknown, users_code
from macs.data.catalog import Dataset, Role, Source, Split, catalog
from macs.data.dataset_adapters import PREFIX, splits_of
from macs.data.image_files import base_of, printable_name
from macs.data.imageset import ImageSet
from macs.data.pixels import OnBroken, Progress
from macs.data.preparation import Preparation, preparation_from
from macs.data.readers import read_npy
from macs.data.spec import DataSpec

log = logging.getLogger(__name__)

SPLITS = ("train", "val", "test")
HELD_OUT = 0.3  # the share of an ID set without splits that the command line holds out of a training
VALIDATION = 2 / 3  # the share of these that validate and calibrate; the others test
DIVISIBLE = 10  # images that such a set must have; fewer are all for training


def data_root(path: str | Path | None = None) -> Path:
    """Return the folder that holds the datasets: `path`, else $MACS_DATA, else the user's cache folder."""
    location = os.environ.get("MACS_DATA") if path is None else path
    if location is None:
        return user_cache()
    hint = "name the folder of the datasets with --data or $MACS_DATA"
    if not str(location).strip():
        raise MacsError(f"The data root is empty; {hint}.")
    folder = user_path(location)
    return folder if kind_of(folder) is None else input_folder(folder, hint)  # `macs data get` creates a missing one


def available() -> list[str]:
    """Return the datasets that `load` knows by name."""
    return catalog.available()


def dataset_called(name: str) -> Dataset:
    """Return the dataset of this name in the catalogue, or the user's own as 'module:Name'.

    The user's own is a `Dataset`, as in the catalogue, or a function of the split that returns a map-style dataset.
    """
    entry = catalog[name]
    if isinstance(entry, Dataset):
        return entry
    if not callable(entry):
        raise MacsError(f"{name} is not a dataset; make it a function of the split that returns one.")

    def reader(source: Source) -> ImageSet:
        with users_code(f"{name}({source.split!r}) fails"):
            made = entry(source.split)
        return ImageSet.from_dataset(
            made, name=name, labelled=source.labelled, preparation=source.preparation, progress=source.progress
        )

    splits = {split: Split(images=0) for split in SPLITS}
    return Dataset(name, name, "id", splits, home="", licence="", citation="", reader=reader)


@dataclass(frozen=True)
class Place:
    """What a name or a path refers to: a dataset of the catalogue or of Hugging Face, a folder, a list or a file."""

    spec: str | Path

    @property
    def path(self) -> Path:
        return user_path(self.spec)

    @property
    def kind(self) -> Literal["dataset", "hf", "folder", "list", "file"] | None:
        """None if nothing has that name."""
        if not isinstance(self.spec, str | Path):
            raise MacsError(f"Images are given by a name or a path, not by a value of type {type(self.spec).__name__}.")
        if self.spec in available():
            return "dataset"
        if isinstance(self.spec, str) and self.spec.startswith(PREFIX):
            return "hf"
        file_kind = kind_of(self.path)
        if file_kind is None:
            return "dataset" if isinstance(self.spec, str) and ":" in self.spec else None
        if file_kind == "a folder":
            return "folder"
        return "list" if self.path.suffix == ".txt" else "file"

    @property
    def dataset(self) -> Dataset:
        return dataset_called(str(self.spec))

    @property
    def splits(self) -> list[str]:
        """Its splits; none if all of its images are one set."""
        if self.kind == "dataset":
            return list(self.dataset.splits)
        if self.kind == "hf":
            return splits_of(str(self.spec))
        return [name for name in SPLITS if kind_of(self.path / name) == "a folder"]

    @property
    def undivided(self) -> bool:
        """Whether its images can train a network and are one set, so that the network has seen all of them."""
        return self.kind in ("folder", "list", "hf") and not self.splits

    @property
    def unseen(self) -> str:
        """The split with images that a network was not trained on: the validation images, else the test images."""
        return "val" if "val" in self.splits else "test"

    def folder(self, split: str) -> Path:
        """Return the folder that holds the images of a split: never train and test images together."""
        splits = self.splits if split else []
        if splits and split not in splits:
            raise MacsError(
                f"The folder {self.path} is divided into {', '.join(splits)} and has no {split}; name one of these."
            )
        return self.path / split if splits else self.path


def load(
    spec: str | Path,
    split: str = "test",
    root: str | Path | None = None,
    size: int | None = None,
    progress: Progress | None = None,
    *,
    labelled: bool = True,
    preparation: Preparation | None = None,
    base: str | Path | None = None,
    broken: OnBroken = "stop",
) -> ImageSet:
    """Load images by the name of a dataset, or from a folder, an image list or a .npy file.

    The set is named by `spec`, so that its name loads it again.

    Parameters
    ----------
    spec
        Name of a dataset of the catalogue (`macs data list`) or of Hugging Face (hf/NAME), or the path of a folder, of
        an image list (.txt) or of a .npy file.
    split
        Which part to load. If a folder has folders called train, val or test, the one of this name is read; any other
        folder, a list and a .npy file are one set, whatever the split. "" reads a folder as it is, divided or not.
    root
        Folder of the datasets; by default $MACS_DATA, else the user's cache folder.
    size
        Edge of the square images, 32 by default.
    progress
        Called as `progress(done, total)` while images are decoded.
    labelled
        Whether the folders inside a folder are classes; say False for outliers, whose images may lie anywhere.
    preparation
        In place of `size`: prepare the images as a network expects them, with `preparation=net.preparation`.
    base
        Where the paths of a list start; by default the list's own folder, else the data root.
    broken
        "skip" leaves out files of a folder or a list that cannot be read, with one warning.

    Returns
    -------
    ImageSet
        The images, with labels and class names where there are some.

    Examples
    --------
    >>> import macs
    >>> macs.data.load("digits", "val")
    <ImageSet digits: 145 images of 32 x 32 pixels, 8 classes>
    """
    place, preparation = Place(spec), preparation_from(size, preparation)
    with timed(log, f"loading {spec}"):
        if place.kind == "dataset":
            images = place.dataset.read(data_root(root), split, preparation, progress, labelled)
        else:
            images = _load(place, split, root, preparation, progress, labelled, base, broken)
    log.info("%s: %d images of %d classes, %d pixels wide", spec, len(images), len(images.classes), images.size)
    origin = DataSpec(
        printable_name(spec),
        split if place.splits else "",
        base=printable_name(base or ""),
        labelled=labelled,
        broken=images.origin.broken,
    )
    return replace(images, name=str(spec), origin=origin)


def _load(
    place: Place,
    split: str,
    root: str | Path | None,
    preparation: Preparation,
    progress: Progress | None,
    labelled: bool,
    base: str | Path | None,
    broken: OnBroken,
) -> ImageSet:
    """Load a folder, a list, a file, or a dataset of Hugging Face."""
    path = place.path
    if place.kind is None:
        if isinstance(place.spec, Path) or len(path.parts) > 1 or path.suffix:
            names = ", ".join(available())
            raise MacsError(f"There is no file or folder {path}; check the path, or name one of: {names}.")
        raise unknown("dataset", place.spec, available())
    if place.kind != "hf" and split not in ("", *SPLITS):
        raise unknown("split", split, list(SPLITS))
    if place.kind == "file":
        if path.suffix != ".npy":
            raise MacsError(
                f"Cannot load {path}: give a folder of images, a list (.txt), a .npy file or the name of a dataset."
            )
        log.info("%s is the file %s", place.spec, path.absolute())
        return ImageSet(path.name, read_npy(path)).resized(preparation)
    if place.kind == "folder":
        folder = place.folder(split)
        log.info("%s is the folder %s", place.spec, folder.absolute())
        images = ImageSet.from_folder(
            folder, labelled=labelled, broken=broken, progress=progress, preparation=preparation
        )
        where = f"class folder {folder}/"
    elif place.kind == "list":
        start = base_of(path, [path.parent, data_root(root)]) if base is None else base
        log.info("%s is a list of paths that start from %s", place.spec, start)
        images = ImageSet.from_list(
            path, root=start, labelled=labelled, broken=broken, progress=progress, preparation=preparation
        )
        where = f"class of {path} called "
    else:
        images = ImageSet.from_hf(place.spec, split, labelled=labelled, progress=progress, preparation=preparation)
        where = f"class of {place.spec} called "
    if split == "train":
        check_classes(images, where)
    return images


def check_classes(images: ImageSet, where: str) -> None:
    """Refuse a training class without images, whose output could not be learned; warn of a class with one image."""
    if images.labels is not None:
        counts = np.bincount(images.labels, minlength=len(images.classes))
        if not counts.all():
            empty = images.classes[int(counts.argmin())]
            raise MacsError(f"The {where}{empty} holds no images to train on; fill it, or remove it.")
        if (single := np.flatnonzero(counts == 1)).size:
            others = f" So do {single.size - 1:,} others." if single.size > 1 else ""
            warn(f"The {where}{images.classes[single[0]]} holds one image, from which no class can be learned.{others}")


def load_unseen(
    spec: str,
    split: str | None = None,
    root: str | Path | None = None,
    size: int | None = None,
    *,
    labelled: bool = True,
    preparation: Preparation | None = None,
) -> ImageSet:
    """Return images to calibrate on: those of `split`, else the validation images, else the test images.

    If there are splits, the set's name says which one was loaded.
    """
    part = split or Place(spec).unseen
    images = load(spec, part, root=root, size=size, labelled=labelled, preparation=preparation)
    return replace(images, name=f"{images.name}{images.origin.note(len(images))}")


def load_held_out(
    spec: str,
    root: str | Path | None = None,
    preparation: Preparation | None = None,
    *,
    labelled: bool = True,
    broken: OnBroken = "stop",
) -> ImageSet | None:
    """Return the validation images of a set, where it has some."""
    if "val" not in Place(spec).splits:
        return None
    return load(spec, "val", root=root, preparation=preparation, labelled=labelled, broken=broken)


def divided(images: ImageSet) -> dict[str, ImageSet]:
    """Divide a set without splits into train, val and test; always the same ones, so that trainings share them."""
    held, train = images.split(HELD_OUT)
    val, test = held.split(VALIDATION)
    return {"train": train, "val": val, "test": test}


def is_validation_part(spec: DataSpec) -> bool:
    """Return whether these are the validation images of the command line: a val split, or the val part of a set."""
    return spec.split == "val" or [part.side for part in spec.parts] == ["first", "first"]


def divided_as(train: DataSpec, root: str | Path | None, preparation: Preparation) -> dict[str, ImageSet]:
    """Return the same for a set of which a training has used the part that its record describes.

    `preparation` is the one that the images of the training had. Raises if the set has changed since then: its parts
    would be others, and images of the training among those that were held out.
    """
    whole = load(
        train.source,
        "",
        root,
        preparation=preparation,
        labelled=train.labelled,
        base=train.base or None,
        broken=train.broken,
    )
    used, *further = train.parts
    if len(whole) == train.whole:
        first, rest = replace(whole, mirror=train.mirror).split(used.count, used.seed)
        seen, held = (first, rest) if used.side == "first" else (rest, first)
        for part in further:
            seen = seen.split(part.count, part.seed)[part.side == "rest"]
        if seen.spec.fingerprint == train.fingerprint:
            val, test = held.split(VALIDATION)
            return {"train": seen, "val": val, "test": test}
    raise MacsError(
        f"{train.source} has changed since the training, so it is unknown which of its images the training held out; "
        "name ID images that the network has not seen."
    )


@dataclass(frozen=True)
class CatalogRow:
    """A line of `macs data list`."""

    name: str
    title: str
    role: Role
    images: dict[str, int]  # the official number in each split
    found: tuple[str, ...]  # the splits that are on disk
    home: str
    licence: str
    citation: str


def catalog_rows(root: str | Path | None = None) -> list[CatalogRow]:
    """Return all datasets of the catalogue, and which of their splits are in the data folder."""
    folder = data_root(root)
    return [catalog_row(catalog[name], folder) for name in available()]


def ood_sets_for(id: str, root: str | Path | None = None) -> list[str]:
    """Return the catalogue's OOD sets on disk: those that come with packages if the ID set does, else the others."""
    embedded = id in available() and bool(catalog[id].packages)
    names = (row.name for row in catalog_rows(root) if row.role == "ood" and "test" in row.found)
    return [name for name in names if name != id and bool(catalog[name].packages) == embedded]


def catalog_row(entry: Dataset, folder: Path) -> CatalogRow:
    images = {split: part.images for split, part in entry.splits.items()}
    on_disk = tuple(split for split in entry.splits if entry.installed() and entry.find(folder, split) is not None)
    return CatalogRow(entry.name, entry.title, entry.role, images, on_disk, entry.home, entry.licence, entry.citation)
