"""What is shown while work goes on. It goes to standard error, so that standard output holds results alone."""

import warnings
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import Progress

from macs.core.errors import MacsWarning

T = TypeVar("T")


class Terminal(Console):
    """A console that leaves a reader's going away to macs.__main__, so that every command ends alike."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def track(items: Iterable[T], total: int, description: str, show: bool) -> Iterator[T]:
    """The items, with a progress bar while they are worked through; nothing is printed where there is no terminal."""
    console = Terminal(stderr=True, quiet=not show)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        yield from bar.track(items, total=total, description=description)


def tell(line: str, show: bool = True) -> None:
    """Print a line about the progress."""
    Terminal(stderr=True, quiet=not show, highlight=False, markup=False).print(line, soft_wrap=True)


def warn(sentence: str) -> None:
    """Point out what a careful colleague would; the command line prints it, and Python code may filter or catch it."""
    warnings.warn(sentence, MacsWarning, stacklevel=3)
