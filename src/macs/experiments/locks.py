"""Lock files: one process at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macs.core.console import tell
from macs.core.flock import fcntl


@contextmanager
def locked(file: Path, waiting: str) -> Iterator[None]:
    """Hold a lock file; if another process holds it, print `waiting` and wait until that process lets go or ends."""
    if fcntl is None:  # Windows: nothing keeps two processes apart
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # some network file systems have no locks
            pass
        yield
    finally:
        os.close(handle)  # this releases the lock, as the system does when a process is killed
