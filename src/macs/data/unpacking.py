"""Archives from the network, unpacked beside their place and then moved into it whole.

Only plain files and folders come out, with no rights or owners of the archive's choosing. pooch leaves the guarding to
tarfile, which guards nothing before Python 3.12.
"""

import gzip
import lzma
import os
import shutil
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from macs.core.errors import MacsError
from macs.data.folder import Progress

# Beside errors of their own, tarfile and zipfile let through what they stumble upon, such as names that are no text.
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, OverflowError),
)


class WrongFile(MacsError):
    """The file itself is of no use, and trying again with the same one will not help."""


class Unsafe(Exception):
    """Says what an archive holds that data never needs."""


def unpack(archive: Path, name: str, into: Path, progress: Progress) -> None:
    """Put what the archive called `name` holds into a folder; files that are there already stay as they are."""
    beside = into if into.is_dir() else into.parent  # on the same disk, so that moving is renaming
    beside.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=beside, prefix=f".{name}.", ignore_cleanup_errors=True) as temporary:
        content = Path(temporary, "content")
        content.mkdir()
        try:
            extract(archive, name, content, progress)
        except Unsafe as what:
            raise WrongFile(f"{name} is not unpacked, since {what}; get it from a trusted place.") from None
        except DAMAGED as error:
            raise WrongFile(f"{name} is damaged ({str(error) or type(error).__name__}); get it again.") from error
        place(content, into)


def extract(archive: Path, name: str, content: Path, progress: Progress) -> None:
    size = archive.stat().st_size
    with archive.open("rb") as raw:
        for member, stream in zip_members(raw) if name.endswith(".zip") else tar_members(raw, name):
            target = content / safe(member)
            if stream is not None and target == content:
                raise Unsafe("one of its members has no name")
            if stream is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                with stream, target.open("wb") as file:
                    shutil.copyfileobj(stream, file)
            progress(raw.tell(), size)


Member = tuple[str, IO[bytes] | None]  # a file's name and content; a folder has none


def tar_members(raw: BinaryIO, name: str) -> Iterator[Member]:
    """What is in a tar, compressed or not."""
    with tarfile.open(fileobj=raw, mode="r:gz" if name.endswith(".gz") else "r:") as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise Unsafe(f"its member {member.name} is a link or a device")
            yield member.name, tar.extractfile(member)


def zip_members(raw: BinaryIO) -> Iterator[Member]:
    """What is in a zip."""
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):  # 0: written by DOS
                raise Unsafe(f"its member {member.filename} is a link or a device")
            folder = member.filename.endswith("/")  # member.is_dir() looks for the last letter of an empty name
            yield member.filename, None if folder else archive.open(member)


def safe(member: str) -> PurePosixPath:
    """The path of a member, if it stays below the folder it is unpacked into, on Windows too."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts):
        raise Unsafe(f"its member {member} leads out of the folder")
    return path


def place(source: Path, target: Path) -> None:
    """Rename into place what is not there yet: a folder in one step where it is new, else what it lacks."""
    if source.is_dir() and target.is_dir():
        for child in sorted(source.iterdir()):
            place(child, target / child.name)
    elif not os.path.lexists(target):
        source.rename(target)
