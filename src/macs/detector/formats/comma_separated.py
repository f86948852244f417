"""CSV, with `true` and `false` for verdicts."""

import csv
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

from macs.detector.formats import COLUMNS, output_format, values_of

if TYPE_CHECKING:
    from macs.detector.verdicts import Prediction


@output_format("csv", suffix=".csv")
def write_csv(rows: "Iterable[Prediction]", file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(json.dumps(value) if isinstance(value, bool) else value for value in values_of(row))
