"""Progress bars, messages, warnings and the log. They go to standard error: standard output holds only results."""

import logging
import os
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import Progress

from macs.core.errors import MacsWarning
from macs.core.text import printable

T = TypeVar("T")


# Set by --quiet and --verbose; the processes that a command starts inherit them.
QUIET, VERBOSE = "MACS_QUIET", "MACS_VERBOSE"


class Terminal(Console):
    """A console that leaves a closed pipe to macs.__main__, so that every command ends in the same way.

    Colours and bars appear only on a terminal; $NO_COLOR turns colours off. With $MACS_QUIET, nothing is printed to
    standard error; warnings and errors do not pass through here.
    """

    def __init__(self, *, stderr: bool = False, quiet: bool = False, **options: Any) -> None:
        super().__init__(stderr=stderr, quiet=quiet or (stderr and bool(os.environ.get(QUIET))), **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def track(items: Iterable[T], total: int, description: str, show: bool) -> Iterator[T]:
    """Yield the items and show a progress bar meanwhile; nothing is printed where there is no terminal."""
    console = Terminal(stderr=True, quiet=not show)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        yield from bar.track(items, total=total, description=description)


def tell(line: str, show: bool = True) -> None:
    """Print one line about the progress of the work."""
    Terminal(stderr=True, quiet=not show, highlight=False, markup=False).print(line, soft_wrap=True)


def warn(sentence: str) -> None:
    """Issue a MacsWarning; the command line prints it, and Python code may filter or catch it."""
    warnings.warn(sentence, MacsWarning, stacklevel=3)


class LogLines(logging.Handler):
    """One line per record; while a progress bar is shown, above it."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(printable(self.format(record)))


def show_log() -> None:
    """With $MACS_VERBOSE, print what the package logs from now on; without it, no longer."""
    logger, verbose = logging.getLogger("macs"), bool(os.environ.get(VERBOSE))
    for handler in [each for each in logger.handlers if isinstance(each, LogLines)]:
        logger.removeHandler(handler)
    if verbose:
        handler = LogLines()
        handler.setFormatter(logging.Formatter("%(asctime)s.%(msecs)03d %(name)s: %(message)s", "%H:%M:%S"))
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.NOTSET)
    logger.propagate = not verbose  # or a library that prints all logs would print ours once more


@contextmanager
def timed(log: logging.Logger, stage: str) -> Iterator[None]:
    """Log how long a stage took, once it is done."""
    start = time.monotonic()
    yield
    log.debug("%s took %.2f s", stage, time.monotonic() - start)


HUB = "huggingface_hub.utils._http"  # the logger that writes two lines about each attempt to reach the hub


@contextmanager
def one_line_about_the_hub() -> Iterator[None]:
    """Say once that the Hugging Face hub does not answer, in place of its client's lines about every attempt."""
    told = False

    def once(_: logging.LogRecord) -> bool:
        nonlocal told
        if not told:
            tell("The Hugging Face hub does not answer; trying again for a minute or two.")
        told = True
        return False

    logger = logging.getLogger(HUB)
    logger.addFilter(once)
    try:
        yield
    finally:
        logger.removeFilter(once)
