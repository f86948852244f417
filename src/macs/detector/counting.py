"""Counts rows of verdicts as they pass: ID, OOD, and images that could not be read."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macs.detector.verdicts import Prediction


class Count:
    """The numbers of rows, of OOD images, and of images that could not be read."""

    def __init__(self) -> None:
        self.rows = self.ood = self.failed = 0

    def __str__(self) -> str:
        rows = "its row gives" if self.failed == 1 else "their rows give"
        failed = f"{self.failed:,} could not be read ({rows} the reason)"
        known = self.rows - self.ood - self.failed
        return f"{self.rows:,} images: {known:,} ID, {self.ood:,} OOD" + (f", {failed}" if self.failed else "")

    def through(
        self, rows: "Iterable[Prediction]", after_each: Callable[[], Any] = lambda: None
    ) -> "Iterator[Prediction]":
        """The rows, counted as they pass; `after_each` is called after each one."""
        for row in rows:
            self.rows += 1
            self.ood += row.is_ood is True
            self.failed += row.is_ood is None
            after_each()
            yield row
