"""What the catalogue says of a public dataset: its files, its size, whose it is, and how it is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import urlsplit

from macs.core.errors import MacsError
from macs.core.files import kind_of
from macs.data.folder import Progress
from macs.data.imageset import ImageSet
from macs.data.preparation import DEFAULT, Preparation

Role = Literal["id", "outliers", "ood"]
Layout = tuple[str, ...]  # files or folders that are read together, relative to the data root


@dataclass(frozen=True)
class Remote:
    """A file as its authors give it out; a mirror keeps it under the same name."""

    url: str
    into: str = "."  # folder below the data root that the file is put into, or unpacked into if it is an archive
    md5: str = ""  # empty where nobody has published it, and so is the size
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
    remote: Remote | None = None  # where the files come from
    parts: int = 1  # how many of a layout's files hold images; the ones after these describe them


def under(folders: str, *files: str) -> tuple[Layout, ...]:
    """One layout for each of the space-separated folders in which people keep the same files."""
    return tuple(tuple((Path(folder) / file).as_posix() for file in files) for folder in folders.split())


@dataclass(frozen=True)
class Source:
    """What a reader gets: where a split was found, and how pictures in it shall become pixels."""

    split: str
    files: tuple[Path, ...]
    preparation: Preparation = DEFAULT
    progress: Progress | None = None

    @property
    def size(self) -> int:
        return self.preparation.size

    def folder(self, labelled: bool = True) -> ImageSet:
        """The images of the folder that was found."""
        return ImageSet.from_folder(
            self.files[0], labelled=labelled, preparation=self.preparation, progress=self.progress
        )


@dataclass(frozen=True)
class Dataset:
    name: str
    title: str
    role: Role  # what it mostly serves as; any dataset may serve as OOD
    splits: Mapping[str, Split]
    home: str
    licence: str
    citation: str
    reader: Callable[[Source], ImageSet]
    mirror: bool = True  # may an image be flipped and still be what it is?
    packages: tuple[str, ...] = ()  # modules whose own files hold the images
    by_hand: str = ""  # what to do where the files are only given to people who register

    def read(
        self, root: Path, split: str, preparation: Preparation = DEFAULT, progress: Progress | None = None
    ) -> ImageSet:
        if split not in self.splits:
            raise MacsError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits)}.")
        if not self.installed():
            raise self.not_installed()
        files = self.find(root, split)
        if files is None:
            raise self.missing(root, split)
        images = self.reader(Source(split, files, preparation, progress))
        return replace(images.prepared(preparation), name=self.name, mirror=self.mirror)

    def installed(self) -> bool:
        """Are the packages there that the images come with?"""
        return all(find_spec(package) is not None for package in self.packages)

    def not_installed(self) -> MacsError:
        needed = " and ".join(self.packages)
        return MacsError(f"{self.name} comes with {needed}, not installed here: pip install 'macs-ood[demo]'.")

    def find(self, root: Path, split: str) -> tuple[Path, ...] | None:
        """The files of a split below the data root, if they are there."""
        for layout in self.splits[split].layouts:
            files = tuple(root / name for name in layout)
            if all(kind_of(file) for file in files):
                return files
        return None

    def likeliest(self, root: Path, split: str) -> Layout:
        """The layout of which most files are there."""

        def there(layout: Layout) -> float:
            return sum(kind_of(root / name) is not None for name in layout) / max(len(layout), 1)

        return max(self.splits[split].layouts, key=there)  # of equals the first, as `find` has it

    def missing(self, root: Path, split: str) -> MacsError:
        """The sentence for a split that is not there, with what the likeliest layout lacks."""
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
    """The names, their common folder said once."""
    rest = [name.removeprefix(f"{PurePosixPath(names[0]).parent}/") for name in names[1:]]
    return ", ".join([names[0], *rest])
