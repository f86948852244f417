"""Files are written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.core.files import write_atomically, write_text


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "results.txt"
    write_text(path, "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(MacsError, match="results.txt.*No space left"):
        write_atomically(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_no_temporary_file(tmp_path):
    def interrupted(temporary: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "results.txt", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_what_the_umask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "results.txt", "new")
    finally:
        os.umask(before)
    assert (tmp_path / "results.txt").stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_real_full_disk_is_one_sentence(tmp_path):
    def onto_a_full_disk(temporary: Path) -> None:
        Path("/dev/full").write_text("x")

    with pytest.raises(MacsError, match="No space left on device"):
        write_atomically(tmp_path / "results.txt", onto_a_full_disk)
