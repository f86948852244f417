"""CSV, with `true` and `false` for verdicts, and texts that neither a spreadsheet nor a terminal obeys."""

import csv
import json
from collections.abc import Iterable
from dataclasses import astuple
from typing import TextIO

from macs.core.text import csv_cell
from macs.detector.formats import output_format
from macs.predictions import COLUMNS, Verdict


@output_format("csv", suffix=".csv")
def write_csv(rows: Iterable[Verdict], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(map(cell, astuple(row)))


def cell(value: object) -> object:
    """Numbers stay what they are, also negative ones."""
    if isinstance(value, str):
        return csv_cell(value)
    return json.dumps(value) if isinstance(value, bool) else value
