"""From the name of a dataset, or a path, to its images."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from macs.core.errors import MacsError
from macs.core.registry import unknown
from macs.data.catalog import catalog
from macs.data.dataset import Dataset, Role
from macs.data.folder import Progress
from macs.data.imageset import ImageSet
from macs.data.readers import read_npy

SPLITS = ("train", "val", "test")


def data_root(path: str | Path | None = None) -> Path:
    """The folder that holds the datasets: the one given, else $MACS_DATA, else the user's cache folder."""
    given = path or os.environ.get("MACS_DATA")
    if given:
        return Path(given).expanduser()
    import pooch

    return Path(pooch.os_cache("macs"))


def available() -> list[str]:
    """The datasets that `load` knows by name."""
    return catalog.available()


def load(
    spec: str | Path,
    split: str = "test",
    root: str | Path | None = None,
    size: int = 32,
    progress: Progress | None = None,
) -> ImageSet:
    """The images of a dataset of the catalogue, of a .npy file, or of a folder, at `size` x `size`.

    A folder with train, val or test inside is read from the one that `split` names; any other folder and a .npy file
    are one set, whatever the split. `progress(done, total)` hears of images as they are decoded. The set is named by
    its spec, so that its name loads it again.
    """
    return replace(_load(spec, split, root, size, progress), name=str(spec))


def _load(spec: str | Path, split: str, root: str | Path | None, size: int, progress: Progress | None) -> ImageSet:
    path = Path(spec).expanduser()
    if isinstance(spec, str) and (spec in available() or (":" in spec and not path.exists())):
        entry = catalog[spec]
        if not isinstance(entry, Dataset):
            raise MacsError(f"{spec} is no dataset; decorate its reader with @macs.data.catalog.dataset(...).")
        return entry.read(data_root(root), split, size, progress)
    if path.is_dir():
        return ImageSet.from_folder(inside(path, split), size, progress=progress)
    if path.suffix == ".npy" and path.is_file():
        return ImageSet(path.name, read_npy(path)).resized(size)
    if path.exists():
        raise MacsError(f"Cannot load {path}: give a folder of images, a .npy file or the name of a dataset.")
    if isinstance(spec, Path) or len(path.parts) > 1 or path.suffix:
        raise MacsError(f"There is no file or folder {path}; check the path, or name one of: {', '.join(available())}.")
    raise unknown("dataset", spec, available())


def inside(folder: Path, split: str) -> Path:
    """The folder of a split, where a folder is divided into splits: never train and test images together."""
    splits = [name for name in SPLITS if (folder / name).is_dir()]
    if not splits:
        return folder
    if split not in splits:
        raise MacsError(
            f"The folder {folder} is divided into {', '.join(splits)} and has no {split}; name one of these."
        )
    return folder / split


def undivided(spec: str) -> bool:
    """Whether this names a folder without splits: a network trained on it has seen all of its images."""
    path = Path(spec).expanduser()
    return spec not in available() and path.is_dir() and not any((path / split).is_dir() for split in SPLITS)


def has_validation(spec: str) -> bool:
    """Whether a dataset of the catalogue, or a folder, has a validation split."""
    return (spec in available() and "val" in catalog[spec].splits) or (Path(spec).expanduser() / "val").is_dir()


def load_unseen(spec: str, split: str | None = None, root: str | Path | None = None, size: int = 32) -> ImageSet:
    """Images to calibrate on: the split named, else the validation images, else the test images.

    The name of a dataset's images says which these were.
    """
    part = split or ("val" if has_validation(spec) else "test")
    images = load(spec, part, root=root, size=size)
    return replace(images, name=f"{spec} ({part})") if spec in available() else images


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
