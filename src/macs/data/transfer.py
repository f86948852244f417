"""One file over HTTP, continued where an earlier attempt stopped; and archives, unpacked safely.

The bytes received so far are in a .part file. Beside it, a .part.tag file keeps the ETag (or the date) of the remote
file: the server continues only that version and sends a changed file from its beginning (If-Range, RFC 9110, 13.1.5).

An archive is unpacked into a temporary folder and then moved into place whole. Only plain files and folders are
unpacked, without the archive's permissions and owners; before Python 3.12, tarfile has no such protection.
"""

import gzip
import logging
import lzma
import os
import re
import shutil
import stat
import struct
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

import requests
import urllib3

from macs.core import __version__
from macs.core.errors import MacsError
from macs.data.pixels import Progress

log = logging.getLogger(__name__)

CHUNK = 2**18  # bytes written at a time
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 4  # in a row without any progress
PAUSE = 1.0  # seconds before the second attempt, doubled with each one after it


class TransientError(Exception):
    """A failure that may not happen again on another attempt."""


def download(url: str, part: Path, size: int, progress: Progress) -> None:
    """Download a file of `size` bytes (0: unknown) to `part`, continuing from the bytes that it has."""
    furthest, failures = length(part), 0
    while trouble := attempt(url, part, size, progress):
        # A server that drops every connection is tried again for as long as more bytes arrive.
        failures = 1 if length(part) > furthest else failures + 1
        furthest = max(furthest, length(part))
        if failures == ATTEMPTS:
            partial = f"; the {length(part):,} bytes that arrived are kept" if length(part) else ""
            raise MacsError(
                f"Cannot download {url} ({trouble}){partial}; check the network and run the command again, "
                "or name another place with --mirror."
            )
        time.sleep(PAUSE * 2 ** (failures - 1))


def attempt(url: str, part: Path, size: int, progress: Progress) -> str:
    """Complete `part` with one request; return why it failed if another attempt may succeed, else an empty string."""
    try:
        if size == 0 or length(part) != size:
            request(url, part, size, progress)
    except (TransientError, requests.RequestException, urllib3.exceptions.HTTPError) as error:
        return describe_failure(error)
    return ""


def request(url: str, part: Path, size: int, progress: Progress) -> None:
    """Append the missing bytes to `part`, or rewrite it if the server sends the whole file."""
    have, tag = length(part), read_tag(part)
    # The bytes as they are stored: a gzip archive must not be unpacked in transit.
    headers = {"Accept-Encoding": "identity", "User-Agent": f"macs/{__version__}"}
    if have and tag:
        headers |= {"Range": f"bytes={have}-", "If-Range": tag}
    log.info("%s to %s, of which %d bytes are there", url, part, have)
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        start, total = span(response, have)
        if start is None:
            discard(part)
            raise TransientError("the file on the server has changed")
        if total and size and total != size:
            raise MacsError(
                f"{url} has {total:,} bytes, but the published file has {size:,}; name another place with --mirror."
            )
        if start == 0 or start < total:
            write(response, part, start, total or size, progress)
    if length(part) < (total or size):
        raise TransientError("the connection ended early")


def span(response: requests.Response, have: int) -> tuple[int | None, int]:
    """Return where the answer starts (None: it does not continue our bytes), and the file's length (0: unknown)."""
    status = f"{response.status_code} {response.reason}".strip()
    if response.status_code in (408, 429) or response.status_code >= 500:
        raise TransientError(f"the server answers {status}")
    if response.status_code in (206, 416):  # partial content, or range not satisfiable
        match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", response.headers.get("Content-Range", ""))
        start, total = (int(number or -1) for number in match.groups()) if match else (-1, -1)
        fits = start == have if response.status_code == 206 else total == have
        return (have if fits else None), total
    if response.status_code != 200:
        raise MacsError(f"{response.url} answers {status}; get the file by hand or name another place with --mirror.")
    return 0, int(response.headers.get("Content-Length") or 0)


def write(response: requests.Response, part: Path, start: int, total: int, progress: Progress) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("ab" if start else "wb") as file:
        if start == 0:
            tag_file(part).write_text(tag_of(response))
        for chunk in response.raw.stream(CHUNK, decode_content=False):
            file.write(chunk)
            start += len(chunk)
            progress(start, total)


def tag_of(response: requests.Response) -> str:
    """Return the identifier of this version of the file; a weak ETag (W/...) does not promise the same bytes."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def tag_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.tag")


def read_tag(part: Path) -> str:
    return tag_file(part).read_text() if tag_file(part).exists() else ""


def length(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    tag_file(part).unlink(missing_ok=True)


def describe_failure(error: Exception) -> str:
    """Return a network error in a few words; its own message is long and mostly about the library."""
    if isinstance(error, TransientError):
        return str(error)
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer for {TIMEOUT:.0f} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted here"
    return "no connection" if isinstance(error, requests.ConnectionError) else "the connection ended early"


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
    """Yield the members of a tar, compressed or not."""
    with tarfile.open(fileobj=raw, mode="r:gz" if name.endswith(".gz") else "r:") as tar:
        for member in tar:
            if not (member.isfile() or member.isdir()):
                raise UnsafeMember(f"its member {member.name} is a link or a device")
            yield member.name, tar.extractfile(member)


def zip_members(raw: BinaryIO) -> Iterator[Member]:
    """Yield the members of a zip."""
    with zipfile.ZipFile(raw) as archive:
        for member in archive.infolist():
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):  # 0: written by DOS
                raise UnsafeMember(f"its member {member.filename} is a link or a device")
            folder = member.filename.endswith("/")  # member.is_dir() fails on an empty name
            yield member.filename, None if folder else archive.open(member)


def safe_path(member: str) -> PurePosixPath:
    """Return the path of a member, refused if it leads out of the target folder, on Windows too."""
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
