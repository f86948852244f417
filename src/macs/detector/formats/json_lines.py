"""JSON lines: one object per image."""

import json
import math
from collections.abc import Iterable
from typing import TextIO

from macs.detector.formats import output_format, values_of
from macs.predictions import COLUMNS, Verdict


@output_format("jsonl", suffix=".jsonl")
def write_json_lines(rows: Iterable[Verdict], file: TextIO) -> None:
    for row in rows:
        values = dict(zip(COLUMNS, values_of(row), strict=True))
        if row.confidence is not None and not math.isfinite(row.confidence):  # JSON has no infinity and no NaN
            values["confidence"] = None
        print(json.dumps(values), file=file)
