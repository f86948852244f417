"""The console that prints tables, bars and messages; it is made of rich, which takes a while to import."""

import os
from typing import Any

from rich.console import Console

from macs.core.console import QUIET


class Terminal(Console):
    """A console that leaves a closed pipe to macs.__main__, so that every command ends in the same way.

    Colours and bars appear only on a terminal; $NO_COLOR turns colours off. With $MACS_QUIET, nothing is printed to
    standard error; warnings and errors do not pass through here.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, quiet=quiet or (stderr and bool(os.environ.get(QUIET))), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError
