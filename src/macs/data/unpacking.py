"""Archives from the network, unpacked into a temporary folder and then moved into place whole.

Only plain files and folders are unpacked, without the archive's permissions and owners; before Python 3.12, tarfile has
no such protection.
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
from macs.data.decoding import Progress

# Besides their own errors, tarfile and zipfile pass on others, such as those of names that cannot be decoded.
DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, RuntimeError, ValueError, OverflowError),
)


class WrongFile(MacsError):
    """The file itself is unusable, so that trying again with it will not help."""


class UnsafeMember(Exception):
    """Says which member of an archive is dangerous."""


def unpack(archive: Path, name: str, into: Path, progress: Progress) -> None:
    """Unpack the archive called `name` into a folder; existing files stay as they are."""
    nearby = into if into.is_dir() else into.parent  # on the same disk, so that moving is renaming
    nearby.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=nearby, prefix=f".{name}.", ignore_cleanup_errors=True) as temporary:
        content = Path(temporary, "content")
        content.mkdir()
        try:
            extract(archive, name, content, progress)
        except UnsafeMember as error:
            raise WrongFile(f"{name} is not unpacked, because {error}; get it from a trusted source.") from None
        except DAMAGED as error:
            raise WrongFile(f"{name} is damaged ({str(error) or type(error).__name__}); get it again.") from error
        move_missing(content, into)


def extract(archive: Path, name: str, content: Path, progress: Progress) -> None:
    size = archive.stat().st_size
    with archive.open("rb") as raw:
        for member, stream in zip_members(raw) if name.endswith(".zip") else tar_members(raw, name):
            target = content / safe_path(member)
            if stream is not None and target == content:
                raise UnsafeMember("one of its members has no name")
            if stream is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                with stream, target.open("wb") as file:
                    shutil.copyfileobj(stream, file)
            progress(raw.tell(), size)


Member = tuple[str, IO[bytes] | None]  # a file's name and content; a folder has none


def tar_members(raw: BinaryIO, name: str) -> Iterator[Member]:
    """The members of a tar, compressed or not."""
    with tarfile.open(fileobj=raw, mode="r:gz" if name.endswith(".gz") else "r:") as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise UnsafeMember(f"its member {member.name} is a link or a device")
            yield member.name, tar.extractfile(member)


def zip_members(raw: BinaryIO) -> Iterator[Member]:
    """The members of a zip."""
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):  # 0: written by DOS
                raise UnsafeMember(f"its member {member.filename} is a link or a device")
            folder = member.filename.endswith("/")  # member.is_dir() fails on an empty name
            yield member.filename, None if folder else archive.open(member)


def safe_path(member: str) -> PurePosixPath:
    """The path of a member, refused if it leads out of the target folder, on Windows too."""
    path = PurePosixPath(member.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts):
        raise UnsafeMember(f"its member {member} leads out of the folder")
    return path


def move_missing(source: Path, target: Path) -> None:
    """Move files and folders that the target lacks: a new folder in one step, else its missing content."""
    if source.is_dir() and target.is_dir():
        for child in sorted(source.iterdir()):
            move_missing(child, target / child.name)
    elif not os.path.lexists(target):
        source.rename(target)
