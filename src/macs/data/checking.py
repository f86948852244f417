"""`macs data check`: which parts of a dataset are on disk, compared with the official numbers and read in full."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from macs.core.errors import MacsError
from macs.core.files import kind_of
from macs.data.dataset import Dataset, Remote, Source
from macs.data.decoding import FilePictures, Progress, unreadable
from macs.data.loading import available, data_root, dataset_called
from macs.data.walking import walk_names

Status = Literal["complete", "partial", "larger", "broken", "missing"]
Bars = Callable[[str], Progress]  # a title -> the callback that shows the progress of the work


def silent(title: str) -> Progress:
    return lambda done, total: None


@dataclass(frozen=True)
class SplitCheck:
    """A split as it is on disk."""

    name: str
    split: str
    images: int  # readable ones
    official: int
    lacks: tuple[str, ...] = ()  # missing files, relative to the data root, if others exist
    broken: tuple[str, ...] = ()  # one sentence per file that cannot be read

    @property
    def status(self) -> Status:
        if self.broken:
            return "broken"
        if self.images == 0:
            return "missing"
        if self.lacks or self.images < self.official:
            return "partial"
        return "complete" if self.images == self.official else "larger"


def check(
    names: Sequence[str] = (), root: str | Path | None = None, bars: Bars = silent, *, thorough: bool = True
) -> list[SplitCheck]:
    """Check every split of the named datasets, or of all; unless `thorough`, images in folders are only counted."""
    folder = data_root(root)
    entries = [dataset_called(name) for name in names or available()]
    return [check_split(entry, split, folder, bars, thorough) for entry in entries for split in entry.splits]


def check_split(entry: Dataset, split: str, root: Path, bars: Bars = silent, thorough: bool = True) -> SplitCheck:
    """Check one split, in the layout that is most complete on disk."""
    try:
        return _check_split(entry, split, root, bars, thorough)
    except MacsError as error:  # for example a folder without permission to enter
        return SplitCheck(entry.name, split, 0, entry.splits[split].images, broken=(str(error),))


def _check_split(entry: Dataset, split: str, root: Path, bars: Bars, thorough: bool) -> SplitCheck:
    official, parts, remote = entry.splits[split].images, entry.splits[split].parts, entry.splits[split].remote
    layout = entry.likeliest(root, split)
    lacks = tuple(name for name in layout if kind_of(root / name) is None)
    files = [root / name for name in layout]
    if not entry.installed() or (layout and len(lacks) == len(layout)):
        return SplitCheck(entry.name, split, 0, official)
    progress = bars(f"{entry.name} {split}")
    if files and kind_of(files[0]) == "a folder":
        images, broken = check_folder(files[0], progress, thorough)
        if thorough and len(files) > 1 and not lacks and not broken:  # do the annotations fit the images?
            broken = read_parts(entry, split, [tuple(files)], silent(""))[1]
        return SplitCheck(entry.name, split, images, official, lacks, tuple(broken))
    annotated = all(map(kind_of, files[parts:]))
    sources = [(part, *files[parts:]) for part in files[:parts] if kind_of(part) and annotated] if files else [()]
    images, broken = read_parts(entry, split, sources, progress)
    # A file that is published as it is must match the published one: damage does not show in a file of plain pixels.
    if thorough and images == official and remote and not remote.archive and (why := differing(files[0], remote)):
        broken = [f"{files[0]} {why}; get the file again."]
    return SplitCheck(entry.name, split, images, official, lacks, tuple(broken))


def read_parts(
    entry: Dataset, split: str, sources: Sequence[tuple[Path, ...]], progress: Progress
) -> tuple[int, list[str]]:
    """The number of images in the parts of a split, and why parts cannot be read; one part is in memory at a time."""
    images, broken = 0, []
    for done, files in enumerate(sources, start=1):
        try:
            images += len(entry.reader(Source(split, files)))
        except MacsError as error:
            broken.append(str(error))
        progress(done, len(sources))
    return images, broken


def check_folder(folder: Path, progress: Progress, thorough: bool) -> tuple[int, list[str]]:
    """The number of readable images below a folder, and why the others cannot be read."""
    files = list(walk_names(folder))
    sentences = [trouble for _, trouble in files if trouble]
    names = [name for name, trouble in files if not trouble]
    broken = unreadable(FilePictures(folder, names), progress) if thorough else {}
    return len(names) - len(broken), [*sentences, *broken.values()]


def md5_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def differing(file: Path, remote: Remote) -> str:
    """How a file differs from the published one in size or checksum; empty if it does not."""
    if remote.size and file.stat().st_size != remote.size:
        return f"has {file.stat().st_size:,} bytes, but the published file has {remote.size:,}"
    if remote.md5 and (md5 := md5_of(file)) != remote.md5:
        return f"has the MD5 checksum {md5}, but the published file has {remote.md5}"
    return ""
