"""What of a dataset is on disk, counted against the official numbers and read to the last pixel."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from macs.core.errors import MacsError
from macs.core.files import kind_of
from macs.data.catalog import catalog
from macs.data.dataset import Dataset, Remote, Source
from macs.data.folder import BLOCK, Progress
from macs.data.loading import available, data_root
from macs.data.pictures import open_rgb
from macs.data.walking import walk

Status = Literal["complete", "partial", "larger", "broken", "missing"]
Bars = Callable[[str], Progress]  # a title -> what to call as the work so titled goes on


def silent(title: str) -> Progress:
    return lambda done, total: None


@dataclass(frozen=True)
class SplitCheck:
    """A split as it is on disk."""

    name: str
    split: str
    images: int  # that can be read
    official: int
    lacks: tuple[str, ...] = ()  # files that are not there beside those that are, relative to the data root
    broken: tuple[str, ...] = ()  # a sentence for each file that cannot be read

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
    """Every split of the named datasets, or of all; unless `thorough`, images in folders are counted but not read."""
    folder = data_root(root)
    entries = [dataset_called(name) for name in names or available()]
    return [look(entry, split, folder, bars, thorough) for entry in entries for split in entry.splits]


def dataset_called(name: str) -> Dataset:
    entry = catalog[name]
    if not isinstance(entry, Dataset):  # 'module:Name' may be anything
        raise MacsError(f"{name} is no dataset; decorate its reader with @macs.data.catalog.dataset(...).")
    return entry


def look(entry: Dataset, split: str, root: Path, bars: Bars = silent, thorough: bool = True) -> SplitCheck:
    """One split, by the layout of which most is there."""
    try:
        return _look(entry, split, root, bars, thorough)
    except MacsError as error:  # a folder that may not be entered, say
        return SplitCheck(entry.name, split, 0, entry.splits[split].images, broken=(str(error),))


def _look(entry: Dataset, split: str, root: Path, bars: Bars, thorough: bool) -> SplitCheck:
    official, parts, remote = entry.splits[split].images, entry.splits[split].parts, entry.splits[split].remote
    layout = entry.likeliest(root, split)
    lacks = tuple(name for name in layout if kind_of(root / name) is None)
    files = [root / name for name in layout]
    if not entry.installed() or (layout and len(lacks) == len(layout)):
        return SplitCheck(entry.name, split, 0, official)
    progress = bars(f"{entry.name} {split}")
    if files and kind_of(files[0]) == "a folder":
        images, broken = look_into(files[0], progress, thorough)
        if thorough and len(files) > 1 and not lacks and not broken:  # does what describes the images fit them?
            broken = read_parts(entry, split, [tuple(files)], silent(""))[1]
        return SplitCheck(entry.name, split, images, official, lacks, tuple(broken))
    described = all(map(kind_of, files[parts:]))
    sources = [(part, *files[parts:]) for part in files[:parts] if kind_of(part) and described] if files else [()]
    images, broken = read_parts(entry, split, sources, progress)
    # A file that is published as it lies here must be that file, and one of plain pixels shows no damage by itself.
    if thorough and images == official and remote and not remote.archive and (why := differing(files[0], remote)):
        broken = [f"{files[0]} {why}; get the file again."]
    return SplitCheck(entry.name, split, images, official, lacks, tuple(broken))


def read_parts(
    entry: Dataset, split: str, sources: Sequence[tuple[Path, ...]], progress: Progress
) -> tuple[int, list[str]]:
    """How many images the parts of a split hold, and why some cannot be read; one part is in memory at a time."""
    images, broken = 0, []
    for done, files in enumerate(sources, start=1):
        try:
            images += len(entry.reader(Source(split, files)))
        except MacsError as error:
            broken.append(str(error))
        progress(done, len(sources))
    return images, broken


def look_into(folder: Path, progress: Progress, thorough: bool) -> tuple[int, list[str]]:
    """How many images below a folder can be read, and why the others cannot."""
    found = list(walk(folder))
    sentences = [trouble for _, trouble in found if trouble]
    pictures = [path for path, trouble in found if not trouble]
    if not thorough:
        return len(pictures), sentences

    def broken(start: int) -> list[str]:
        return [why for path in pictures[start : start + BLOCK] if (why := unreadable(path))]

    readable = len(pictures)
    starts = range(0, len(pictures), BLOCK)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start, why in zip(starts, pool.map(broken, starts), strict=True):
            sentences += why
            readable -= len(why)
            progress(min(start + BLOCK, len(pictures)), len(pictures))
    return readable, sentences


def unreadable(picture: Path) -> str:
    """Why an image cannot be read; empty if it can."""
    try:
        open_rgb(picture)
    except MacsError as error:
        return str(error)
    return ""


def differing(file: Path, remote: Remote) -> str:
    """In what a file differs from the published one, by its size and its checksum; empty if in nothing."""
    from pooch import file_hash

    if remote.size and file.stat().st_size != remote.size:
        return f"has {file.stat().st_size:,} bytes, but the published file has {remote.size:,}"
    if remote.md5 and (md5 := file_hash(str(file), alg="md5")) != remote.md5:
        return f"has the MD5 checksum {md5}, but the published file has {remote.md5}"
    return ""
