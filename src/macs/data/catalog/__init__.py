"""The public datasets: one file per dataset, whose reader is decorated with `@dataset(...)`.

An entry names the files of a dataset, its size, its authors and its reader.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from macs.core.errors import MacsError
from macs.core.files import kind_of
from macs.core.registry import Registry
from macs.data.imageset import ImageSet
from macs.data.pixels import Progress
from macs.data.preparation import DEFAULT, Preparation

log = logging.getLogger(__name__)

Role = Literal["id", "outliers", "ood"]
Layout = tuple[str, ...]  # files or folders that are read together, relative to the data root


@dataclass(frozen=True)
class Remote:
    """A file as its authors publish it; a mirror has it under the same name."""

    url: str
    into: str = "."  # folder below the data root that the file is put into, or unpacked into if it is an archive
    md5: str = ""  # empty if not published; likewise a size of 0
    size: int = 0

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self.url).path).name

    @property
    def archive(self) -> bool:
        return self.name.endswith((".tar", ".tar.gz", ".zip"))


@dataclass(frozen=True)
class Split:
    images: int  # the official number
    layouts: tuple[Layout, ...] = ((),)  # the first whose files are all there is read; ((),) needs no files
    remote: Remote | None = None  # the download that holds the files
    parts: int = 1  # the number of a layout's files that hold images; the files after these annotate them


def under(folders: str, *files: str) -> tuple[Layout, ...]:
    """Return the layouts of the same files in each of several folders, which are separated by spaces."""
    return tuple(tuple((Path(folder) / file).as_posix() for file in files) for folder in folders.split())


@dataclass(frozen=True)
class Source:
    """The argument of a reader: the files of a split, and how its pictures become pixels."""

    split: str
    files: tuple[Path, ...]
    preparation: Preparation = DEFAULT
    progress: Progress | None = None
    labelled: bool = True  # False if labels are not wanted; a reader may still give them

    @property
    def size(self) -> int:
        return self.preparation.size

    def folder(self, labelled: bool = True) -> ImageSet:
        """Return the images of the split's folder."""
        return ImageSet.from_folder(
            self.files[0], labelled=labelled, preparation=self.preparation, progress=self.progress
        )


@dataclass(frozen=True)
class Dataset:
    name: str
    title: str
    role: Role  # its usual role; any dataset may serve as OOD
    splits: Mapping[str, Split]
    home: str
    licence: str
    citation: str
    reader: Callable[[Source], ImageSet]
    mirror: bool = True  # whether a mirrored image still belongs to its class
    packages: tuple[str, ...] = ()  # installed packages that contain the images
    by_hand: str = ""  # how to get the files if their authors ask for a registration

    def read(
        self,
        root: Path,
        split: str,
        preparation: Preparation = DEFAULT,
        progress: Progress | None = None,
        labelled: bool = True,
    ) -> ImageSet:
        if split not in self.splits:
            raise MacsError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}.")
        if not self.installed():
            raise self.not_installed()
        files = self.find(root, split)
        if files is None:
            raise self.missing(root, split)
        log.info("the %s split of %s is read from %s", split, self.name, ", ".join(map(str, files)) or self.packages)
        images = self.reader(Source(split, files, preparation, progress, labelled))
        return replace(images.prepared(preparation), name=self.name, mirror=self.mirror)

    def installed(self) -> bool:
        """Return whether the packages that contain the images are installed."""
        return all(find_spec(package) is not None for package in self.packages)

    def not_installed(self) -> MacsError:
        needed = " and ".join(self.packages)
        return MacsError(f"{self.name} comes with {needed}, which is not installed; run: pip install 'macs-ood[demo]'.")

    def find(self, root: Path, split: str) -> tuple[Path, ...] | None:
        """Return the files of a split below the data root, if they are there."""
        for layout in self.splits[split].layouts:
            files = tuple(root / name for name in layout)
            if all(kind_of(file) for file in files):
                return files
        return None

    def likeliest(self, root: Path, split: str) -> Layout:
        """Return the layout with the largest share of its files on disk."""

        def share(layout: Layout) -> float:
            return sum(kind_of(root / name) is not None for name in layout) / max(len(layout), 1)

        return max(self.splits[split].layouts, key=share)  # ties go to the first, as in `find`

    def missing(self, root: Path, split: str) -> MacsError:
        """Return the error for a missing split, with the files that the likeliest layout lacks."""
        likeliest = self.likeliest(root, split)
        lacks = [name for name in likeliest if kind_of(root / name) is None]
        others = [layout[0] for layout in self.splits[split].layouts if layout != likeliest]
        accepted = f" (or {', '.join(others)})" if others else ""
        get = f"by `macs data get {self.name}` or " if self.splits[split].remote else ""
        return MacsError(
            f"The {split} split of {self.name} is not in {root}: there is no {listed(lacks)}{accepted}; "
            f"get it {get}from {self.home}, or name the folder that holds it with --data or $MACS_DATA."
        )


def listed(names: Sequence[str]) -> str:
    """Return the names, with the folder of the first removed from the others."""
    rest = [name.removeprefix(f"{PurePosixPath(names[0]).parent}/") for name in names[1:]]
    return ", ".join([names[0], *rest])


__all__ = ["Remote", "Source", "Split", "catalog", "dataset", "under"]

catalog = Registry[Dataset]("macs.data.catalog", "dataset")


def dataset(
    name: str,
    *,
    title: str,
    role: Role,
    splits: Mapping[str, Split],
    home: str,
    licence: str,
    citation: str,
    mirror: bool = True,
    packages: tuple[str, ...] = (),
    by_hand: str = "",
) -> Callable[[Callable[[Source], ImageSet]], Dataset]:
    """Register the decorated reader as a dataset of the catalogue."""

    def add(reader: Callable[[Source], ImageSet]) -> Dataset:
        entry = Dataset(name, title, role, splits, home, licence, citation, reader, mirror, packages, by_hand)
        return catalog(name)(entry)

    return add
