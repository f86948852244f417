"""Progress bars, messages, warnings and the log. They go to standard error: standard output holds only results."""

import logging
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from macs.core.errors import MacsWarning
from macs.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T", bound=Sized)
FIRST_LINE, MOST_SECONDS = 10, 60  # seconds until the first line of progress, and at most between two


# Set by --quiet and --verbose; the processes that a command starts inherit them.
QUIET, VERBOSE = "MACS_QUIET", "MACS_VERBOSE"


def track(batches: Iterable[T], total: int, description: str, show: bool) -> Iterator[T]:
    """Yield batches of `total` images in all, and show a progress bar; where there is no terminal, a line at times.

    The first line is printed after ten seconds, the next ones less and less often, down to one per minute, and a last
    one at the end; work that takes less than ten seconds prints nothing. The images per second are the mean over all
    the work so far, including that of the caller.
    """
    from rich.progress import Progress

    console = terminal(stderr=True, quiet=not show)
    start = time.monotonic()
    done, due = 0, float(FIRST_LINE)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total)
        for batch in batches:
            yield batch
            done += len(batch)
            bar.advance(task, len(batch))
            seconds = time.monotonic() - start
            if not console.is_terminal and (seconds >= due or (done == total and due > FIRST_LINE)):
                speed = f"{done / seconds:,.1f} images per second"
                tell(f"{description}: {done:,} of {total:,} images in {seconds:.0f} s, {speed}", show)
                due = seconds + min(seconds, MOST_SECONDS)


def terminal(*, stderr: bool = False, quiet: bool = False, **options: Any) -> "Console":
    """Return a console of rich, which takes a while to import and prints tables, bars and messages.

    It leaves a closed pipe to macs.__main__, so that every command ends in the same way. Colours and bars appear only
    on a terminal; $NO_COLOR turns colours off. With $MACS_QUIET, nothing is printed to standard error; warnings and
    errors do not pass through here.
    """
    from rich.console import Console

    console = Console(stderr=stderr, quiet=quiet or (stderr and bool(os.environ.get(QUIET))), **options)
    console.on_broken_pipe = _raise_broken_pipe  # type: ignore[method-assign]  # rich would exit by itself
    return console


def _raise_broken_pipe() -> NoReturn:
    raise BrokenPipeError


def tell(line: str, show: bool = True) -> None:
    """Print one line about the progress of the work."""
    terminal(stderr=True, quiet=not show, highlight=False, markup=False).print(line, soft_wrap=True)


def shows_progress() -> bool:
    """Return whether standard error is a terminal that other packages may draw their bars on."""
    console = terminal(stderr=True)
    return console.is_terminal and not console.quiet


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
