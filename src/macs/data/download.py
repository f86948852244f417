"""`macs data get`: download datasets from their authors or from a mirror, verify, unpack and count them."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from macs.core.errors import MacsError
from macs.core.files import input_file, write_atomically
from macs.data import transfer
from macs.data.checking import Bars, SplitCheck, check, check_split, differing, silent
from macs.data.dataset import Dataset, Remote
from macs.data.loading import data_root, dataset_called
from macs.data.unpacking import WrongFile, unpack

__all__ = ["Got", "check", "get"]


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
    """Why an incomplete split is not downloaded, since existing files are never replaced; empty if it can be."""
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
