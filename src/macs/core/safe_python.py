"""Python processes that run no file of the working folder, which may have come with a download.

`python -m` and `python -c` put the working folder first on sys.path, so that a file called secrets.py there would
replace the standard library's module. With -P they do not. The user's own code, named as module:Class, is still
found there: `registry.import_from` puts the folder last.
"""

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
