"""Every number that the paper prints, with its error: Tables 1 to 7 and Figures 1, 4 and 5.

Tamang, Bouadjenek, Dazeley, Aryal: Margin-bounded Confidence Scores for Out-of-Distribution Detection, ICDM 2024.
The numbers are in paper_numbers.json, one record per line, exactly as printed; where other numbers of the authors
contradict a cell, its `likely` and `note` say so. Metrics are in percent and take OOD as the positive class.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from macs.core.errors import MacsError
from macs.core.registry import unknown


@dataclass(frozen=True)
class PrintedNumber:
    """One number of Tables 1 to 4, 6 and 7: the mean and standard error of a metric over 10 test trials.

    MaCS stands for the margin 0.5, MaCS* for the margin that Table 5 gives to the ID set and network.
    """

    table: int
    id: str
    net: str
    method: str
    metric: str
    mean: float
    error: float
    ood: str | None = None  # None: averaged over `averaged_over(id)`, or the ID accuracy
    likely: float | None = None  # what the mean should be, where the authors' other numbers contradict the print
    note: str = ""


@dataclass(frozen=True)
class PrintedMargin:
    """One entry of Table 5: the margin behind MaCS*."""

    id: str
    net: str
    margin: float


@dataclass(frozen=True)
class PrintedCurve:
    """One line of Fig. 4: a metric of MaCS, averaged over `averaged_over(id)`, at each margin."""

    id: str
    net: str
    metric: str
    margins: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class PrintedBar:
    """One bar of Fig. 5: a metric averaged over `averaged_over(id)`, with the margin 0.5 (`bounded`) or without any."""

    id: str
    net: str
    metric: str
    bounded: bool
    value: float


@dataclass(frozen=True)
class PrintedBox:
    """One box of Fig. 1: the confidences, from 0 to 1, that a method trained on CIFAR-100 gives to a test set."""

    method: str
    data: str
    whisker_low: float
    quartile_low: float
    median: float
    quartile_high: float
    whisker_high: float


KEYS = ("ood", "id", "net", "method", "metric")
TABLES = (1, 2, 3, 4, 6, 7)  # the tables of cells; Table 5 holds margins


@cache
def _file() -> Any:
    return json.loads(resources.files("macs.research").joinpath("paper_numbers.json").read_text(encoding="utf-8"))


def about(part: str) -> Any:
    """Return the title, the shared numbers and the records of "table 1" to "table 7" or "figure 1", 3, 4 or 5."""
    parts = _file()["parts"]
    if part not in parts:
        raise unknown("part of the paper", part, list(parts))
    return parts[part]


def averaged_over(id: str) -> tuple[str, ...]:
    """Return the OOD sets behind an average for this ID set.

    The paper's text leaves SVHN out for ImageNet-32 as for SVHN itself, but its ImageNet-32 numbers include it.
    """
    sets = _file()["averaged_over"]
    if id not in sets:
        raise unknown("ID set in the paper", id, list(sets))
    return tuple(sets[id])


@cache
def _cells(number: int) -> tuple[PrintedNumber, ...]:
    return tuple(PrintedNumber(table=number, **record) for record in about(f"table {number}")["records"])


def table(number: int) -> list[PrintedNumber]:
    """Return the cells of Table 1, 2, 3, 4, 6 or 7, row by row as printed."""
    if number == 5:
        raise MacsError("Table 5 of the paper holds margins instead of metrics: use margins() for it.")
    return list(_cells(number))


def margins() -> list[PrintedMargin]:
    """Table 5."""
    return [PrintedMargin(**record) for record in about("table 5")["records"]]


def margin_curves() -> list[PrintedCurve]:
    """Fig. 4, panel by panel."""
    records = about("figure 4")["records"]
    return [PrintedCurve(**r | {"margins": tuple(r["margins"]), "values": tuple(r["values"])}) for r in records]


def bars() -> list[PrintedBar]:
    """Fig. 5."""
    return [PrintedBar(**record) for record in about("figure 5")["records"]]


def boxes() -> list[PrintedBox]:
    """Fig. 1, from left to right."""
    return [PrintedBox(**record) for record in about("figure 1")["records"]]


def doubtful() -> list[PrintedNumber]:
    """Return the cells whose printed mean the authors' other numbers contradict."""
    return [cell for number in TABLES for cell in table(number) if cell.likely is not None]


def cells(number: int, **keys: str | None) -> list[PrintedNumber]:
    """Return the cells of a table that have these keys, e.g. cells(3, ood="svhn", method="oe")."""
    matches = table(number)
    for key, wanted in keys.items():
        if key not in KEYS:
            raise unknown("key of a table cell", key, list(KEYS))
        narrowed = [cell for cell in matches if getattr(cell, key) == wanted]
        if not narrowed:
            known = list(dict.fromkeys(str(getattr(cell, key)) for cell in matches))
            raise unknown(f"{key} in this part of the paper's Table {number}", str(wanted), known)
        matches = narrowed
    return matches


def cell(number: int, **keys: str | None) -> PrintedNumber:
    """Return the only cell of a table with these keys; keys that have a single value there may be left out."""
    matches = cells(number, **keys)
    if len(matches) > 1:
        open_keys = " and ".join(key for key in KEYS if len({getattr(c, key) for c in matches}) > 1)
        raise MacsError(f"{len(matches)} cells of the paper's Table {number} match; also give {open_keys}.")
    return matches[0]
