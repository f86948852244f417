"""Archives come out whole or not at all, and never beyond their folder."""

import errno
import os
import shutil
import stat
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from archives import contents, special, tar, zipped
from macs.core.errors import MacsError
from macs.data.transfer import unpack

FILES = {"set/a/1.txt": b"one", "set/a/2.txt": b"two" * 50_000, "set/b.txt": b""}
MAKERS = {"set.tar": lambda files: tar(files, ""), "set.tar.gz": tar, "set.zip": zipped}


def unpacked(tmp_path: Path, name: str, content: bytes, into: str = "root") -> list[tuple[int, int]]:
    (tmp_path / name).write_bytes(content)
    heard: list[tuple[int, int]] = []
    unpack(tmp_path / name, name, tmp_path / into, lambda done, total: heard.append((done, total)))
    return heard


def symlink_in_zip(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("into", ["root", "root/inner/folder"])
def test_what_went_in_comes_out(tmp_path: Path, name: str, into: str) -> None:
    heard = unpacked(tmp_path, name, MAKERS[name](FILES), into)
    assert contents(tmp_path / into) == FILES
    size = (tmp_path / name).stat().st_size
    assert heard == sorted(heard) and all(0 < done <= total == size for done, total in heard)


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_there_stays_as_it_is_and_what_it_lacks_is_added(tmp_path: Path, name: str) -> None:
    mine = tmp_path / "root" / "set" / "a" / "1.txt"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    (tmp_path / "root" / "other").write_bytes(b"other")
    unpacked(tmp_path, name, MAKERS[name](FILES))
    assert contents(tmp_path / "root") == {**FILES, "set/a/1.txt": b"mine", "other": b"other"}


def test_a_new_folder_appears_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = []
    monkeypatch.setattr("pathlib.Path.rename", lambda source, target: renamed.append(target))
    unpacked(tmp_path, "set.tar", tar(FILES, ""))
    assert renamed == [tmp_path / "root"]


def test_rights_and_owners_of_the_archive_are_left_behind(tmp_path: Path) -> None:
    member = special("set/run.sh", tarfile.REGTYPE)
    member.mode = 0o6777
    unpacked(tmp_path, "set.tar.gz", tar({}, "gz", member))
    mode = (tmp_path / "root" / "set" / "run.sh").stat().st_mode
    assert mode & 0o7111 == 0


EVIL = {
    "parent": ("set.tar.gz", tar({**FILES, "../evil": b"x"}), "../evil leads out"),
    "inner parent": ("set.tar.gz", tar({**FILES, "set/../../evil": b"x"}), "leads out"),
    "absolute": ("set.tar.gz", tar({**FILES, "/evil": b"x"}), "/evil leads out"),
    "folder": ("set.tar", tar(FILES, "", special("../evil", tarfile.DIRTYPE)), "leads out"),
    "symlink": ("set.tar.gz", tar(FILES, "gz", special("link", tarfile.SYMTYPE, "/etc")), "link is a link or a device"),
    "inner symlink": ("set.tar.gz", tar(FILES, "gz", special("set/x", tarfile.SYMTYPE, "b.txt")), "is a link"),
    "hard link": ("set.tar.gz", tar(FILES, "gz", special("link", tarfile.LNKTYPE, "/etc/passwd")), "is a link"),
    "device": ("set.tar.gz", tar(FILES, "gz", special("null", tarfile.CHRTYPE)), "or a device"),
    "pipe": ("set.tar.gz", tar(FILES, "gz", special("pipe", tarfile.FIFOTYPE)), "or a device"),
    "zip parent": ("set.zip", zipped({**FILES, "../evil": b"x"}), "leads out"),
    "zip absolute": ("set.zip", zipped({**FILES, "/evil": b"x"}), "leads out"),
    "zip symlink": ("set.zip", zipped(FILES, (symlink_in_zip("link"), b"/etc/passwd")), "link is a link or a device"),
    "backslash": ("set.zip", zipped({**FILES, "..\\evil": b"x"}), "leads out"),
    "drive": ("set.zip", zipped({**FILES, "C:evil": b"x"}), "leads out"),
}
DAMAGED = {
    "cut gzip": ("set.tar.gz", tar({"noise": os.urandom(10_000)})[:5000], "damaged"),
    "cut tar": ("set.tar", tar({"noise": os.urandom(10_000)}, "")[:5000], "damaged"),
    "cut zip": ("set.zip", zipped(FILES)[:-30], "damaged"),
    "flipped zip": ("set.zip", zipped({"a": b"A" * 99}).replace(b"a", b"b", 1), "damaged"),
    "web page": ("set.tar.gz", b"<html>please log in</html>", "damaged"),
    "empty": ("set.tar", b"", "damaged"),
}


@pytest.mark.parametrize("case", [*EVIL, *DAMAGED])
def test_an_archive_that_is_evil_or_damaged_leaves_no_trace(tmp_path: Path, case: str) -> None:
    name, content, words = {**EVIL, **DAMAGED}[case]
    mine = tmp_path / "root" / "mine"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with pytest.raises(MacsError, match=rf"^{name} .*{words}.*; get it .*\.$"):
        unpacked(tmp_path, name, content)
    assert contents(tmp_path) == {name: content, "root/mine": b"mine"}
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_a_full_disk_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copyfileobj

    def full(stream: IO[bytes], file: IO[bytes]) -> None:
        if file.name.endswith("2.txt"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copy(stream, file)

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        unpacked(tmp_path, "set.zip", zipped(FILES))
    assert [path.name for path in tmp_path.iterdir()] == ["set.zip"]


@pytest.mark.parametrize("nameless", ["", ".", "./"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_member_without_a_name_is_refused_unless_it_is_the_folder_itself(
    tmp_path: Path, name: str, nameless: str
) -> None:
    if name == "set.zip":
        member = zipfile.ZipInfo("x")
        member.filename = nameless
        content = zipped(FILES, (member, b"" if nameless == "./" else b"content"))
    else:
        content = tar(FILES, name.removeprefix("set.tar").removeprefix("."), special(nameless, tarfile.REGTYPE))
    if name == "set.zip" and nameless == "./":
        unpacked(tmp_path, name, content)
        assert contents(tmp_path / "root") == FILES
    else:
        with pytest.raises(MacsError, match="one of its members has no name"):
            unpacked(tmp_path, name, content)


@pytest.mark.parametrize("name", MAKERS)
def test_a_damaged_archive_is_one_sentence_wherever_the_damage_is(tmp_path: Path, name: str) -> None:
    whole = MAKERS[name]({"set/a.txt": b"one" * 100, "set/b.txt": b"two"})
    random = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        for at in random.integers(0, len(content), 3):
            content[at] = random.integers(256)
        with suppress(MacsError, OSError):  # which `get` makes a sentence of
            unpacked(tmp_path, name, bytes(content))
