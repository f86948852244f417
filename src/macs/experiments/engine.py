"""Engines: where and how many at a time cells are trained and measured.

An engine is told once what is in memory, and is then given cells. It takes the next cell when it has room for it, and
gives the results as they come, in any order. A cell that fails ends neither the engine nor the other cells.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from macs.experiments.cells import Cell, Examination, Result
from macs.metrics import FprRule

if TYPE_CHECKING:
    from macs.training.sources import Held


class Done(NamedTuple):
    """A cell and what it came to, or why it failed."""

    cell: Cell
    result: Result | None
    error: Exception | None = None

    def value(self) -> Result:
        """The result, or the error raised."""
        if self.result is None:
            raise self.error or AssertionError("neither a result nor an error")
        return self.result


class Engine(Protocol):
    def hold(self, held: "Held") -> None:
        """Use these images and networks where cells name them, instead of those held before."""

    def run(self, cells: Iterable[Cell], on: Examination, fpr_rule: FprRule = "first") -> Iterator[Done]:
        """Train every cell that is not finished, and measure it."""


@dataclass
class SerialEngine:
    """One cell after the other, in this process."""

    data: Path | None = None  # root of the datasets that cells name
    progress: bool = True
    held: "Held | None" = None

    def hold(self, held: "Held") -> None:
        self.held = held

    def run(self, cells: Iterable[Cell], on: Examination, fpr_rule: FprRule = "first") -> Iterator[Done]:
        from macs.training.sources import NOTHING

        held = self.held or NOTHING
        for cell in cells:
            try:
                cell.run(self.data, held, self.progress)
                done = Done(cell, cell.examine(on, held, fpr_rule, self.progress))
            except Exception as error:  # whatever it is, an experiment of days must not end with one of its cells
                done = Done(cell, None, error)
            yield done
