"""One file over HTTP, continued where an earlier attempt stopped.

The bytes received so far are in a .part file. Beside it, a .part.tag file keeps the ETag (or the date) of the remote
file: the server continues only that version and sends a changed file from its beginning (If-Range, RFC 9110, 13.1.5).
"""

import logging
import re
import time
from pathlib import Path

import requests
import urllib3

from macs.core.errors import MacsError
from macs.core.version import __version__
from macs.data.decoding import Progress

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
    """The offset where the answer starts (None: it does not continue our bytes), and the file's length (0: unknown)."""
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
    """The identifier of this version of the file; a weak ETag (W/...) does not promise the same bytes."""
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
    """A network error in a few words; its own message is long and mostly about the library."""
    if isinstance(error, TransientError):
        return str(error)
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return f"no answer for {TIMEOUT:.0f} seconds"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate is not trusted here"
    return "no connection" if isinstance(error, requests.ConnectionError) else "the connection ended early"
