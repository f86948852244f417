"""Downloads over a real connection that breaks in every way a connection breaks."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from faulty_server import Site, serving
from macs.core.errors import MacsError
from macs.data import transfer

CONTENT = bytes(range(256)) * 40  # 10,240 bytes of which no two neighbours are the same


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    with serving(Site({"/file": CONTENT})) as site:
        yield site


@pytest.fixture
def part(tmp_path: Path) -> Path:
    return tmp_path / ".file.part"


def fetch(site: Site, part: Path, size: int = len(CONTENT)) -> list[tuple[int, int]]:
    """Download and return what was reported on the way."""
    heard: list[tuple[int, int]] = []
    transfer.download(f"{site.url}/file", part, size, lambda done, total: heard.append((done, total)))
    return heard


def test_a_file_arrives_and_its_progress_is_told(site: Site, part: Path) -> None:
    heard = fetch(site, part)
    assert part.read_bytes() == CONTENT and heard[-1] == (len(CONTENT), len(CONTENT))
    assert len(site.asked) == 1 and "Range" not in site.asked[0]


@pytest.mark.parametrize("size", [len(CONTENT), 0])
def test_a_dropped_connection_goes_on_where_it_stopped(site: Site, part: Path, size: int) -> None:
    site.faults = ["drop 3000", "drop 4000"]
    heard = fetch(site, part, size)
    assert part.read_bytes() == CONTENT
    assert [asked.get("Range") for asked in site.asked] == [None, "bytes=3000-", "bytes=7000-"]
    assert site.sent == len(CONTENT)  # not a byte twice
    assert heard == sorted(heard) and {total for _, total in heard} == {len(CONTENT)}


def test_a_server_that_drops_every_connection_is_asked_for_as_long_as_more_arrives(site: Site, part: Path) -> None:
    site.faults = ["drop 500"] * 20
    fetch(site, part)
    assert part.read_bytes() == CONTENT and len(site.asked) == 21


def test_a_download_goes_on_in_a_later_run(site: Site, part: Path) -> None:
    site.faults = ["drop 3000", *[503] * transfer.ATTEMPTS]
    with pytest.raises(MacsError, match=r"503.*3,000 bytes that arrived are kept.*run the command again"):
        fetch(site, part)
    assert part.read_bytes() == CONTENT[:3000]
    fetch(site, part)
    assert part.read_bytes() == CONTENT and site.asked[-1]["Range"] == "bytes=3000-" and site.sent == len(CONTENT)


def test_a_server_that_ignores_ranges_makes_us_begin_again(site: Site, part: Path) -> None:
    site.ranges = False
    site.faults = ["drop 3000", "drop 2000"]
    fetch(site, part)
    assert part.read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_and_never_finishes_is_given_up(site: Site, part: Path) -> None:
    site.ranges = False
    site.faults = ["drop 3000"] * 100
    with pytest.raises(MacsError, match="the connection ended early"):
        fetch(site, part)
    assert len(site.asked) == transfer.ATTEMPTS


@pytest.mark.parametrize("change", ["etag", "modified"])
def test_a_file_that_changed_meanwhile_is_not_glued_to_the_old_one(site: Site, part: Path, change: str) -> None:
    site.etag = None
    setattr(site, change, "Mon, 01 Jan 2024 00:00:00 GMT" if change == "modified" else '"old"')
    site.faults = ["drop 3000", *[503] * transfer.ATTEMPTS]
    with pytest.raises(MacsError):
        fetch(site, part)
    site.files["/file"] = CONTENT[::-1]
    setattr(site, change, "Tue, 02 Jan 2024 00:00:00 GMT" if change == "modified" else '"new"')
    fetch(site, part)
    assert part.read_bytes() == CONTENT[::-1]


@pytest.mark.parametrize("etag", [None, 'W/"1"'])
def test_a_file_whose_version_is_not_named_is_begun_again(site: Site, part: Path, etag: str | None) -> None:
    site.etag = etag
    site.faults = ["drop 3000"]
    fetch(site, part)
    assert part.read_bytes() == CONTENT and "Range" not in site.asked[1]


@pytest.mark.parametrize("left", [len(CONTENT), len(CONTENT) + 5])
def test_a_part_as_long_as_the_file_is_the_file_and_a_longer_one_is_not(site: Site, part: Path, left: int) -> None:
    part.write_bytes((CONTENT + b"extra")[:left])
    transfer.tag_file(part).write_text('"1"')
    fetch(site, part, size=0)
    assert part.read_bytes() == CONTENT and site.sent == (0 if left == len(CONTENT) else len(CONTENT))


def test_a_whole_part_of_known_size_needs_no_network(part: Path) -> None:
    part.write_bytes(CONTENT)
    fetch(Site(url="http://127.0.0.1:1"), part)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_that_recovers_is_asked_again(site: Site, part: Path, status: int) -> None:
    site.faults = [status, status]
    fetch(site, part)
    assert part.read_bytes() == CONTENT and len(site.asked) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_file_that_is_not_there_is_not_asked_for_again(site: Site, part: Path, status: int) -> None:
    site.faults = [status]
    with pytest.raises(MacsError, match=rf"/file answers {status} \w+.*--mirror"):
        fetch(site, part)
    assert len(site.asked) == 1 and not part.exists()


def test_a_file_of_another_length_is_refused_before_it_is_fetched(site: Site, part: Path) -> None:
    with pytest.raises(MacsError, match=r"has 10,240 bytes, but the published file has 999;"):
        fetch(site, part, size=999)
    assert not part.exists()


def test_without_a_length_the_published_size_tells_the_end(site: Site, part: Path) -> None:
    site.lengths = False
    site.faults = ["drop 3000"]
    fetch(site, part)
    assert part.read_bytes() == CONTENT and len(site.asked) == 2


def test_an_archive_is_not_unpacked_on_its_way(site: Site, part: Path) -> None:
    site.encoding = "gzip"  # so some servers label .tar.gz files, and a browser would unpack them
    fetch(site, part)
    assert part.read_bytes() == CONTENT and site.asked[0]["Accept-Encoding"] == "identity"


def test_without_a_network_one_sentence_and_no_file(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PAUSE", 0.001)
    with pytest.raises(MacsError, match=r"127\.0\.0\.1:1/file \(no connection\); check the network.*--mirror\.$"):
        fetch(Site(url="http://127.0.0.1:1"), part)
    assert list(part.parent.iterdir()) == []


def test_a_silent_server_is_not_waited_for_forever(site: Site, part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT", 0.05)
    monkeypatch.setattr("faulty_server.answer", lambda request, site: time.sleep(0.3))
    with pytest.raises(MacsError, match="no answer for 0 seconds"):
        fetch(site, part)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full, a disk on which nothing has room")
def test_a_full_disk_is_not_mistaken_for_the_network(site: Site, part: Path) -> None:
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        fetch(site, part)
    assert len(site.asked) == 1
