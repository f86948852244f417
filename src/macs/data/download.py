"""`macs data check` and `macs data get`: which parts of a dataset are on disk, and how the others get there.

What is on disk is compared with the official numbers and read in full. A download comes from the authors or from a
mirror, and is verified, unpacked and counted.
"""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from macs.core.errors import MacsError
from macs.core.files import input_file, kind_of, write_atomically
from macs.data import transfer
from macs.data.catalog import Dataset, Remote, Source
from macs.data.image_files import walk_names
from macs.data.loading import available, data_root, dataset_called
from macs.data.pixels import FilePictures, Progress, unreadable
from macs.data.transfer import WrongFile, unpack

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
    """Return the number of images in a split, and why parts cannot be read; one part is in memory at a time."""
    images, broken = 0, []
    for done, files in enumerate(sources, start=1):
        try:
            images += len(entry.reader(Source(split, files)))
        except MacsError as error:
            broken.append(str(error))
        progress(done, len(sources))
    return images, broken


def check_folder(folder: Path, progress: Progress, thorough: bool) -> tuple[int, list[str]]:
    """Return the number of readable images below a folder, and why the others cannot be read."""
    files = list(walk_names(folder))
    sentences = [trouble for _, trouble in files if trouble]
    names = [name for name, trouble in files if not trouble]
    broken = unreadable(FilePictures(folder, names), progress) if thorough else {}
    return len(names) - len(broken), [*sentences, *broken.values()]


def md5_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def differing(file: Path, remote: Remote) -> str:
    """Return how a file differs from the published one in size or checksum; empty if it does not."""
    if remote.size and file.stat().st_size != remote.size:
        return f"has {file.stat().st_size:,} bytes, but the published file has {remote.size:,}"
    if remote.md5 and (md5 := md5_of(file)) != remote.md5:
        return f"has the MD5 checksum {md5}, but the published file has {remote.md5}"
    return ""


@dataclass(frozen=True)
class Got:
    """What `get` did for a dataset."""

    name: str
    fetched: tuple[str, ...]  # the files that were downloaded; none if nothing was missing
    splits: tuple[SplitCheck, ...]  # as they are now
    kept: tuple[str, ...] = ()  # one sentence per incomplete file that was left alone


def get(name: str, root: str | Path | None = None, mirror: str | None = None, bars: Bars = silent) -> Got:
    """Download the files of a dataset that the data root lacks, and leave existing files as they are.

    `mirror` is a base URL (http, https or file) that has the files under the same names.
    """
    entry, folder = dataset_called(name), data_root(root)
    check_mirror(mirror)
    if not entry.installed():
        raise entry.not_installed()
    splits = tuple(check_split(entry, split, folder, thorough=False) for split in entry.splits)
    obstacles = {split.split: why for split in splits if (why := obstacle(entry, split, folder))}
    lacking = [
        split.split for split in splits if split.status in ("missing", "partial") and split.split not in obstacles
    ]
    if obstacles and not lacking:
        raise MacsError(next(iter(obstacles.values())))
    if lacking and entry.by_hand and mirror is None:
        raise MacsError(
            f"{name} is only given to people who register; these are the steps:", entry.by_hand.format(root=folder)
        )
    wanted = dict.fromkeys(remote_of(entry, split) for split in lacking)  # one archive may hold several splits
    for remote in wanted:
        fetch(remote, folder, mirror, bars)
    if wanted:
        splits = tuple(check_split(entry, split, folder, thorough=False) for split in entry.splits)
    return Got(name, tuple(remote.name for remote in wanted), splits, tuple(obstacles.values()))


def check_mirror(mirror: str | None) -> None:
    if mirror is None:
        return
    try:
        address = urlsplit(mirror)
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
        usable = usable or (address.scheme == "file" and not address.netloc and len(address.path) > 0)
    except ValueError:  # a port that is not a number, or an incomplete IPv6 address
        usable = False
    if not usable or not mirror.isprintable():
        raise MacsError(f"Cannot use {mirror!r} as a mirror; give a URL such as https://host/data or file:///data.")


def obstacle(entry: Dataset, split: SplitCheck, folder: Path) -> str:
    """Return why an incomplete split is not downloaded, since existing files are never replaced; empty if it can be."""
    if split.broken:
        more = f" ({len(split.broken) - 1} more are broken)" if len(split.broken) > 1 else ""
        return f"{split.broken[0].rstrip('.')}, but move this one away first{more}."
    files = entry.find(folder, split.split)
    if split.status == "partial" and files and files[0].is_file():
        holds = f"{split.images:,} of the {split.official:,} {split.split} images of {entry.name}"
        return f"{files[0]} holds {holds}; move it away to get the whole file."
    return ""


def remote_of(entry: Dataset, split: str) -> Remote:
    remote = entry.splits[split].remote
    if remote is None:
        raise MacsError(f"The catalogue has no link to the {split} split of {entry.name}; see {entry.home}.")
    return remote


def fetch(remote: Remote, root: Path, mirror: str | None, bars: Bars) -> None:
    """Download a file, verify it, and move it or its content into place; a file:// mirror is only read."""
    url = f"{mirror.rstrip('/')}/{remote.name}" if mirror else remote.url
    part = root / f".{remote.name}.part"
    try:
        if url.startswith("file:"):
            put_in_place(remote, url, Path(url2pathname(urlsplit(url).path)), shutil.copyfile, root, bars)
            return
        transfer.download(url, part, remote.size, bars(remote.name))
        try:
            put_in_place(remote, url, part, shutil.move, root, bars)
        except WrongFile:  # if it were kept, the next attempt would use it again
            transfer.discard(part)
            raise
        transfer.discard(part)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        kept = f", and the {transfer.length(part):,} bytes that have arrived are kept" if part.exists() else ""
        raise MacsError(
            f"Cannot get {remote.name} into {root}: {error.strerror or error}{where}; existing files are unchanged"
            f"{kept}, so correct that or choose another folder with --data, and run the command again."
        ) from error


def put_in_place(
    remote: Remote, url: str, file: Path, put: Callable[[Path, Path], object], root: Path, bars: Bars
) -> None:
    """Verify a local file, then unpack it or put it where it belongs."""
    input_file(file, hint="put it there or name another place with --mirror")
    if why := differing(file, remote):
        raise WrongFile(f"{url} {why}; try again later, or name another place with --mirror.")
    if remote.archive:
        unpack(file, remote.name, root / remote.into, bars(f"unpacking {remote.name}"))
    else:
        write_atomically(root / remote.into / remote.name, lambda temporary: put(file, temporary))
