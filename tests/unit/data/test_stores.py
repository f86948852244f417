"""Images behind URLs: what is found, what is read, and what is said where nothing can be."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from macs.core.errors import MacsError
from macs.core.files import is_url
from macs.data import stores
from macs.data.image_files import find_images
from macs.data.preparation import Preparation
from macs.data.stores import content_of, found_in, pictures_in, store_of

fsspec = pytest.importorskip("fsspec")


def png(value: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(buffer, "png")
    return buffer.getvalue()


@pytest.fixture
def memory() -> Iterator[Any]:
    """A store in memory with five pictures, one of them broken, and things that are none."""
    system = fsspec.filesystem("memory")
    for name, value in {"b.png": 1, "a.PNG": 2, "c/d.png": 3, "c/.hidden.png": 4, "c1/e.png": 5}.items():
        system.pipe_file(f"/photos/{name}", png(value))
    system.pipe_file("/photos/broken.png", b"not a picture")
    system.pipe_file("/photos/notes.txt", b"notes")
    yield system
    system.rm("/photos", recursive=True)


def names(*paths: str) -> list[str]:
    return [item.name for item in find_images(paths)]


def levels(*paths: str) -> list[int]:
    return [int(item.read(Preparation(8))[0, 0, 0]) for item in find_images(paths)]


def test_what_is_a_url() -> None:
    assert is_url("s3://bucket/a.png") and is_url("memory://a") and is_url("gs+x://a")
    assert not is_url("photos/a.png") and not is_url("C://photos") and not is_url("a:b.png") and not is_url("://x")


def test_folders_globs_and_files(memory: Any) -> None:
    inside = ["a.PNG", "b.png", "broken.png", "c/d.png", "c1/e.png"]
    assert names("memory://photos") == names("memory://photos/") == [f"memory://photos/{name}" for name in inside]
    assert levels("memory://photos/c", "memory://photos/*.PNG", "memory://photos/b.png") == [3, 2, 1]


def test_a_folder_is_listed_as_it_is_needed(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    ls = type(memory).ls

    def noted(self: Any, path: str, **more: Any) -> Any:
        listed.append(path)
        return ls(self, path, **more)

    monkeypatch.setattr(type(memory), "ls", noted)
    first = next(iter(found_in(store_of("memory://photos"))))
    assert first == "memory://photos/a.PNG" and not any("c" in path.rpartition("/")[2] for path in listed)


def test_what_cannot_be_read_has_a_row_that_says_why(memory: Any) -> None:
    (broken,) = find_images("memory://photos/broken.png")
    with pytest.raises(MacsError, match="Cannot read the image memory://photos/broken.png: it is not one of PNG"):
        broken.read(Preparation(8))
    (missing,) = find_images("memory://photos/none.png")
    with pytest.raises(MacsError, match="Cannot read memory://photos/none.png: nothing is there"):
        missing.read(Preparation(8))
    (unknown,) = find_images("nowhere://a.png")
    with pytest.raises(MacsError, match="Cannot understand the URL nowhere://a.png"):
        unknown.read(Preparation(8))


def test_a_file_is_one_request_and_one_without_a_first_byte_is_read_too(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    cat_file = type(memory).cat_file

    def as_s3_does(self: Any, path: str, start: int | None = None, **more: Any) -> Any:
        asked.append(start)
        content = cat_file(self, path, **more)
        if start is not None and not content:
            raise OSError(22, "The requested range is not satisfiable")
        return content[start:]

    monkeypatch.setattr(type(memory), "cat_file", as_s3_does)
    assert content_of("memory://photos/b.png") == png(1) and asked == [0]
    memory.pipe_file("/photos/empty.png", b"")
    assert content_of("memory://photos/empty.png") == b"" and asked == [0, 0, None]
    with pytest.raises(MacsError, match="Cannot read memory://photos/none.png: nothing is there"):
        content_of("memory://photos/none.png")
    assert asked == [0, 0, None, 0]


def test_shards(memory: Any, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as shard:
        for name, content in {"0.png": png(7), "0.json": b"{}", "1.png": png(9)}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            shard.addfile(entry, io.BytesIO(content))
    memory.pipe_file("/photos/c1/shard.tar", buffer.getvalue())
    (tmp_path / "shard.tar").write_bytes(buffer.getvalue())
    inside = ("e.png", "shard.tar/0.png", "shard.tar/1.png")
    assert names("memory://photos/c1") == [f"memory://photos/c1/{name}" for name in inside]
    assert levels("memory://photos/c1/shard.tar") == levels(str(tmp_path / "shard.tar")) == [7, 9]
    memory.pipe_file("/photos/c1/shard.tar", b"damaged")
    (damaged,) = find_images("memory://photos/c1/shard.tar")
    with pytest.raises(MacsError, match="Cannot read memory://photos/c1/shard.tar"):
        damaged.read(Preparation(8))


@pytest.mark.parametrize("nested", [False, True])
def test_parquet(nested: bool, memory: Any) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    values = [{"bytes": png(each), "path": None} if nested else png(each) for each in range(100)]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"image": values, "label": list(range(100))}), buffer)
    memory.pipe_file("/photos/part.parquet", buffer.getvalue())
    assert levels("memory://photos/part.parquet") == list(range(100))
    assert names("memory://photos/part.parquet")[:2] == [f"memory://photos/part.parquet/{row}" for row in (0, 1)]
    buffer = io.BytesIO()
    pq.write_table(pa.table({"label": [1]}), buffer)
    memory.pipe_file("/photos/part.parquet", buffer.getvalue())
    with pytest.raises(MacsError, match="it needs a column called image, bytes"):
        list(pictures_in("memory://photos/part.parquet"))


def test_without_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "find_spec", lambda name: None)
    with pytest.raises(MacsError, match="need fsspec: pip install fsspec"):
        content_of("s3://bucket/a.png")
