"""Files are written whole or not at all, where they may be written, and that is known before the work."""

import errno
import io
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import (
    IMAGE_ENDINGS,
    LONGEST_HEADER,
    label_text,
    output_file,
    output_folder,
    read_header,
    user_path,
    write_atomically,
    write_text,
)
from macs.data.preparation import SUFFIXES


def refusal(action: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(MacsError) as caught:
        action(*arguments)
    return str(caught.value)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("recipe.toml", "net.safetensors"):
        (folder / name).write_text("precious")
    return folder


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    write_text(path, "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    assert "No space left on device. The file that was there is unchanged." in refusal(write_atomically, path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert refusal(write_atomically, tmp_path / "new", half).endswith("No space left on device.")


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path) -> None:
    def interrupted(temporary: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "results.txt", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_has_the_rights_of_the_umask_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    before = os.umask(0o022)
    try:
        write_text(path, "new")
        assert path.stat().st_mode & 0o777 == 0o644
        path.chmod(0o600)
        write_text(path, "newer")
        assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_real_full_disk_is_one_sentence(tmp_path: Path) -> None:
    assert "Cannot write /dev/full: No space left on device." in refusal(write_text, "/dev/full", "x")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_another_fault_of_the_writer_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    def broken(temporary: Path) -> None:
        torch.zeros(2) @ torch.zeros(3)

    with pytest.raises(RuntimeError, match="size"):
        write_atomically(tmp_path / "x", broken)


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    assert output_file("/dev/null") == Path("/dev/null")
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    if os.geteuid() == 0:  # a null device of our own, that root could replace
        own = tmp_path / "null"
        os.mknod(own, 0o666 | stat.S_IFCHR, Path("/dev/null").stat().st_rdev)
        write_text(output_file(own), "x")
        assert stat.S_ISCHR(own.stat().st_mode)


def test_a_fifo_goes_to_its_reader_and_without_one_nobody_waits(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    assert "No process reads from it" in refusal(write_text, output_file(fifo), "x")
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write_text(output_file(fifo), "x")
    assert os.read(reader, 9) == b"x"
    os.close(reader)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_all_of_a_long_text_arrives_through_a_fifo(tmp_path: Path) -> None:
    fifo, text = tmp_path / "fifo", "0123456789" * 50_000
    os.mkfifo(fifo)
    found: list[str] = []
    first = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(first, True)

    def read() -> None:
        while part := os.read(first, 2**16):
            found.append(part.decode())

    def write(temporary: Path) -> None:
        temporary.write_text(text)

    keeper = os.open(fifo, os.O_WRONLY)  # or the reader could see the end before the beginning
    thread = threading.Thread(target=read)
    thread.start()
    write_atomically(fifo, write)
    os.close(keeper)
    thread.join()
    os.close(first)
    assert "".join(found) == text


def test_a_link_stands_for_what_it_points_at(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target, link = tmp_path / "elsewhere" / "real.csv", tmp_path / "link.csv"
    link.symlink_to(target)
    assert output_file(link) == target  # dangling: the file is made where the link leads
    for text in ("first", "second"):
        write_text(link, text)
        assert link.is_symlink() and target.read_text() == text
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["real.csv"]


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    for action in (output_file, output_folder, lambda path: write_text(path, "x")):
        assert os.strerror(errno.ELOOP) in refusal(action, tmp_path / "a")


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path, tmp_path / "folder-link"):
        if path != tmp_path:
            path.symlink_to(tmp_path)
        assert "is a folder; name a file" in refusal(output_file, path)
        assert "is a folder; name a file" in refusal(write_text, path, "x")
    for deeper in ("x", "x/y/z"):
        assert f"{tmp_path / 'file'} is a file, not a folder" in refusal(output_file, tmp_path / "file" / deeper)
        assert f"{tmp_path / 'file'} is a file, not a folder" in refusal(output_folder, tmp_path / "file" / deeper)
        assert "Cannot write" in refusal(write_text, tmp_path / "file" / deeper, "x")
    assert "is a file, not a folder" in refusal(output_folder, tmp_path / "file")
    assert "is empty" in refusal(output_file, " ")
    assert "NUL" in refusal(output_file, "a\0b")
    assert "encoding" in refusal(user_path, "\ud800.csv")


@pytest.mark.parametrize("sign", ["a", "é", "€", "🐈"])
def test_the_longest_name_can_be_written_and_one_longer_is_refused(tmp_path: Path, sign: str) -> None:
    size = len(sign.encode())
    name = sign * (255 // size) + "a" * (255 % size)
    write_text(output_file(tmp_path / name), "x")
    assert (tmp_path / name).read_text() == "x"
    assert os.strerror(errno.ENAMETOOLONG) in refusal(output_file, tmp_path / (name + "a"))


@pytest.mark.parametrize("name", ["recipe.toml", "net.safetensors", "state.pt", "metrics.jsonl"])
def test_no_file_of_a_run_is_overwritten(run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "link.html").symlink_to(run / name)
    (tmp_path / "linked-run").symlink_to(run)
    for path in (run / name, tmp_path / "link.html", tmp_path / "linked-run" / name, run / "x" / ".." / name):
        assert f"belongs to the run in {run}" in refusal(output_file, path)
    assert output_file(run / "report.html") == run / "report.html"
    assert output_file(tmp_path / name) == tmp_path / name
    assert "holds a run" in refusal(output_folder, run)
    assert "holds a run" in refusal(output_folder, tmp_path / "linked-run")


def test_what_is_read_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "detector").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "detector")
    for path in ("detector", "link"):
        assert "while it is read" in refusal(output_file, tmp_path / path, ["cifar10", tmp_path / "detector"])
    assert output_file(tmp_path / "other", [tmp_path / "detector"]) == tmp_path / "other"


def test_pictures_and_arrays_are_never_overwritten(tmp_path: Path) -> None:
    for name in ("a.png", "b.JPEG", "c.npy"):
        (tmp_path / name).write_text("precious")
        assert "holds images" in refusal(output_file, tmp_path / name)
        assert output_file(tmp_path / f"new-{name}") == tmp_path / f"new-{name}"
    (tmp_path / "link.csv").symlink_to(tmp_path / "a.png")
    assert "holds images" in refusal(output_file, tmp_path / "link.csv")
    (tmp_path / "a.csv").write_text("results")
    assert output_file(tmp_path / "a.csv") == tmp_path / "a.csv"
    assert set(SUFFIXES) < set(IMAGE_ENDINGS)


def test_a_header_is_read_as_safetensors_wrote_it() -> None:
    floats, integers = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(1, np.int64)
    tensors: dict[str, NDArray[Any]] = {"a": floats, "b": integers}
    content = safetensors.numpy.save(tensors, metadata={"macs": '{"x": 1}'})
    header, start = read_header(io.BytesIO(content))
    assert label_text(header) == '{"x": 1}'
    for name, tensor in tensors.items():
        first, last = header[name]["data_offsets"]
        assert header[name]["shape"] == list(tensor.shape)
        assert content[start + first : start + last] == tensor.tobytes()
    assert start + max(header[name]["data_offsets"][1] for name in tensors) == len(content)


def test_a_file_of_others_has_no_label() -> None:
    header, _ = read_header(io.BytesIO(safetensors.numpy.save({"a": np.ones(1)}, metadata={"format": "pt"})))
    assert label_text(header) is None
    assert label_text({}) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05",
        (20).to_bytes(8, "little") + b"{",
        (2).to_bytes(8, "little") + b"[]",
        (LONGEST_HEADER + 1).to_bytes(8, "little") + b"{}",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (2).to_bytes(8, "little") + b"\xff\xfe",
    ],
    ids=["empty", "cut in the length", "cut in the header", "a list", "too long", "nested", "not text"],
)
def test_what_is_no_header_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - some are json's own
        read_header(io.BytesIO(content))


@pytest.mark.parametrize("metadata", [[1], 3, {"macs": 3}, {"macs": ["x"]}])
def test_metadata_of_another_form_are_refused(metadata: object) -> None:
    with pytest.raises(ValueError, match="metadata"):
        label_text(json.loads(json.dumps({"__metadata__": metadata})))
