"""Arrays on disk: what is put in comes back, nothing damaged does, and the folder stays within its limit."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from macs.core.cache import FOLDER, Cache, cache_folder, keeping, kept

KEY = "ab" * 20


def arrays(seed: int = 0, count: int = 250) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {"logits": random.normal(size=(count, 2)).astype(np.float32), "features": np.zeros((count, 0), np.float32)}


def only_file(cache: Cache) -> Path:
    ((_, _, path),) = cache.files()
    return path


def test_what_is_kept_comes_back_bit_by_bit(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.get(KEY) is None and cache.files() == []
    cache.put(KEY, arrays())
    found = Cache(cache.folder).get(KEY)
    assert found is not None and set(found) == {"logits", "features"}
    assert all(found[name].tobytes() == array.tobytes() for name, array in arrays().items())
    assert cache.get("cd" * 20) is None
    assert set(load_file(only_file(cache))) == {"logits", "features"}  # any reader of safetensors can open it


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other", "folder"])
def test_a_damaged_file_is_no_entry_and_is_replaced(damage: str, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, arrays())
    path = only_file(cache)
    content = path.read_bytes()
    if damage == "other":
        save_file(arrays(seed=1), path)
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    else:
        flipped = content[:-1] + bytes([content[-1] ^ 1])
        path.write_bytes({"cut": content[:-100], "flipped": flipped, "empty": b""}[damage])
    assert cache.get(KEY) is None
    cache.put(KEY, arrays())
    if damage != "folder":
        assert path.read_bytes() == content and cache.get(KEY) is not None


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_a_full_disk_costs_the_entry_and_nothing_else(tmp_path: Path) -> None:
    import resource

    cache, limits = Cache(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        cache.put(KEY, arrays())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cache.get(KEY) is None and cache.files() == []


def test_an_entry_of_another_key_is_not_taken_for_this_one(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put(KEY, arrays())
    other = "ab" + "ef" * 19
    only_file(cache).rename(tmp_path / "ab" / f"{other}.safetensors")
    assert cache.get(other) is None


def test_the_oldest_files_go_first_and_the_limit_holds(tmp_path: Path) -> None:
    def key(number: int) -> str:
        return f"{number:040x}"

    for number in range(30):  # 2,000 bytes each, by as many commands
        Cache(tmp_path, limit=40_000).put(key(number), arrays(number))
        path = tmp_path / "00" / f"{key(number)}.safetensors"
        os.utime(path, (1000 + number, 1000 + number))
        if number == 10:
            assert Cache(tmp_path).get(key(0)) is not None  # used just now
        assert sum(size for _, size, _ in Cache(tmp_path).files()) <= 40_000
    left = [number for number in range(30) if Cache(tmp_path).get(key(number)) is not None]
    assert left[0] == 0 and left[1:] == list(range(30 - len(left) + 1, 30)) and len(left) > 10


def test_a_long_pass_keeps_its_beginning(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=40_000)
    for number in range(40):
        cache.put(f"{number:040x}", arrays(number))
        assert sum(size for _, size, _ in cache.files()) <= 40_000
    kept_ones = [cache.get(f"{number:040x}") is not None for number in range(40)]
    count = sum(kept_ones)
    assert count > 10 and all(kept_ones[:count])


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = Cache(tmp_path / "file")
    cache.put(KEY, arrays())
    assert cache.get(KEY) is None


def test_there_is_a_cache_only_inside_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert kept() is None
    with keeping():
        inside = kept()
        assert inside is not None and inside.folder == tmp_path
        with keeping(False):
            assert kept() is None
    assert kept() is None
    monkeypatch.delenv(FOLDER)
    assert cache_folder().name == "outputs" and cache_folder().parent.name == "macs"
