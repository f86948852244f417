"""What the C library does with freed memory. Needs no torch."""

import ctypes
import sys


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
