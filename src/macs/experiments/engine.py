"""Engines train and measure cells; they decide where, and how many at a time.

`hold` says which images and networks are in memory, and `run` gets the cells. An engine takes the next cell when it has
room for it and yields results as they come, in any order. A cell that fails stops neither the engine nor other cells.
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
    """A cell with its result, or with the error that made it fail."""

    cell: Cell
    result: Result | None
    error: Exception | None = None

    def value(self) -> Result:
        """The result; if the cell failed, its error is raised."""
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
            except Exception as error:  # one failing cell must not end an experiment that takes days
                done = Done(cell, None, error)
            yield done
