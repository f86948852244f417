"""How many rows of verdicts went by, and what they said."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macs.detector.verdicts import Prediction


class Count:
    """Rows passed through, with how many there were, how many are OOD and how many failed."""

    def __init__(self) -> None:
        self.rows = self.ood = self.failed = 0

    def __str__(self) -> str:
        failed = f"{self.failed:,} that could not be read and {'says' if self.failed == 1 else 'say'} why"
        known = self.rows - self.ood - self.failed
        return f"{self.rows:,} images: {known:,} ID, {self.ood:,} OOD" + (f", {failed}" if self.failed else "")

    def through(self, rows: "Iterable[Prediction]", heard: Callable[[], Any] = lambda: None) -> "Iterator[Prediction]":
        for row in rows:
            self.rows += 1
            self.ood += row.is_ood is True
            self.failed += row.is_ood is None
            heard()
            yield row
