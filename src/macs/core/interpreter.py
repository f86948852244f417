"""The Python process: the memory that it keeps, and processes like it that run no file of the working folder.

`python -m` and `python -c` put the working folder first on sys.path, so that a file called secrets.py there, which may
have come with a download, would replace the standard library's module. With -P they do not. The user's own code, named
as module:Class, is still found there: `registry.import_from` puts the folder last.
"""

import ctypes
import sys
from typing import SupportsIndex

PYTHON_FLAGS = ("-P",)


def python(*arguments: str) -> list[str]:
    """Return the command line of a Python process like this one."""
    return [sys.executable, *PYTHON_FLAGS, *arguments]


class _Appending(list[str]):
    """A sys.path to which folders are added at the end only."""

    def insert(self, place: SupportsIndex, folder: str) -> None:
        self.append(folder)


def driver_folders_last() -> None:
    """Have Ray put the driver's folders last on a worker's sys.path, and not first, as it does with the first task."""
    sys.path = _Appending(sys.path)


def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next tensors, in the whole process.

    By default it hands every large block back to the system, and the next one costs a page fault every 4 KiB: on a CPU
    that is more than half the time of an activation or a batch norm. Training and scoring free and take the same blocks
    at every step, so nothing is gained by giving them back. The command `macs` calls this; a library must not, so a
    program that uses macs has to decide for itself. glibc only; elsewhere nothing happens.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
        libc.mallopt(trim_threshold, -1)
        libc.mallopt(mmap_max, 0)
