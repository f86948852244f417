"""The Python process: the memory that it keeps, and processes like it that run no file of the working folder.

`python -m` and `python -c` put the working folder first on sys.path, so that a file called secrets.py there, which may
have come with a download, would replace the standard library's module. With -P they do not. The user's own code, named
as module:Class, is still found there: `registry.import_from` puts the folder last.
"""

import ctypes
import sys
from pathlib import Path

PYTHON_FLAGS = ("-P",)


def python(*arguments: str) -> list[str]:
    """Return the command line of a Python process like this one."""
    return [sys.executable, *PYTHON_FLAGS, *arguments]


def working_folder_last() -> None:
    """Move the working folder to the end of sys.path: Ray puts that of the driver first in every worker."""
    folder = str(Path.cwd())
    if folder in sys.path:
        sys.path[:] = [place for place in sys.path if place != folder] + [folder]


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
