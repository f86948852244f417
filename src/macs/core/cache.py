"""Arrays that can be computed again, kept on disk: found by a key, checked when they are read, and bounded in size.

    with keeping():
        ...  # whoever asks for `kept()` in here finds what earlier commands computed

Each entry is a safetensors file, which runs no code. A damaged file counts as missing and is written again. What cannot
be written is computed again next time: no error of the cache ends a command.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs.core.errors import MacsError
from macs.core.files import user_cache, user_path, write_atomically

if TYPE_CHECKING:  # every command imports this file, and few of them use the cache
    from numpy.typing import NDArray

log = logging.getLogger(__name__)
FOLDER = "MACS_CACHE"  # the variable that names another folder
LIMIT = 2 * 10**9  # bytes of all files
STEPS = 20  # old files are removed whenever another 20th of the limit has been written


def cache_folder() -> Path:
    """$MACS_CACHE, else a folder in the user's cache folder."""
    if named := os.environ.get(FOLDER):
        return user_path(named)
    return user_cache() / "outputs"


@dataclass
class Cache:
    """Arrays by key, in one folder; the files that were not used for longest are removed first."""

    folder: Path
    limit: int = LIMIT
    written: int = 0  # bytes, by this object

    def get(self, key: str) -> "dict[str, NDArray[Any]] | None":
        """Return the arrays of a key; None if there are none, or if the file is damaged."""
        from safetensors import SafetensorError, safe_open

        path = self._path(key)
        try:
            with safe_open(path, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
                checksum = (file.metadata() or {}).get("sha256")
        except (OSError, SafetensorError):
            return None
        if checksum != _checksum(key, arrays):
            return None
        with suppress(OSError):
            os.utime(path)
        return arrays

    def put(self, key: str, arrays: "Mapping[str, NDArray[Any]]") -> None:
        """Keep the arrays, unless much has been written already: a long pass must not push out its own beginning."""
        from safetensors.numpy import save

        before, after = self.written, self.written + sum(array.nbytes for array in arrays.values())
        if after > self._steps(STEPS - 3):
            return
        self.written = after
        content = save(dict(arrays), {"sha256": _checksum(key, arrays)})
        try:
            if not before or before * STEPS // self.limit != after * STEPS // self.limit:
                self._make_room()
            write_atomically(self._path(key), lambda path: path.write_bytes(content))
        except (MacsError, OSError) as error:
            log.info("The cache cannot be written, and nothing is kept: %s", error)
            self.written = self.limit

    def files(self) -> list[tuple[float, int, Path]]:
        """When each file was last used, its size and its path, the oldest first."""
        found = []
        for path in self.folder.rglob("*"):
            with suppress(OSError):  # another process may have removed it
                if path.is_file():
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return sorted(found)

    def _make_room(self) -> None:
        """Remove the oldest files, so that the limit holds until the next time."""
        files = self.files()
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self._steps(STEPS - 2):
                break
            with suppress(OSError):
                path.unlink()
            total -= size

    def _steps(self, count: int) -> int:
        return self.limit * count // STEPS

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.safetensors"


def _checksum(key: str, arrays: "Mapping[str, NDArray[Any]]") -> str:
    import hashlib

    digest = hashlib.sha256(key.encode())
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, array.shape, array.dtype.str)).encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


_kept: ContextVar[Cache | None] = ContextVar("kept", default=None)


@contextmanager
def keeping(on: bool = True) -> Iterator[None]:
    """Keep and use computed arrays in this block; with False, neither."""
    kept_here = on and find_spec("torch") is not None  # the outputs of torch's networks are all that is kept
    token = _kept.set(Cache(cache_folder()) if kept_here else None)
    try:
        yield
    finally:
        _kept.reset(token)


def kept() -> Cache | None:
    """Return the cache of the present block; None outside of one."""
    return _kept.get()
