"""Python processes that run no file of the working folder, which may have come with a download.

`python -m` and `python -c` put the working folder first on sys.path, so that a file called secrets.py there would
replace the standard library's module. With -P they do not. The user's own code, named as module:Class, is still
found there: `registry.import_from` puts the folder last.
"""

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
