"""Rows of verdicts as a table for people, CSV, JSON lines or Parquet, each written as it comes."""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from macs.core.errors import MacsError
from macs.core.text import printable, whole

if TYPE_CHECKING:
    from macs.detector.stream import Row

Format = Literal["table", "csv", "jsonl", "parquet"]
SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".txt": "table"}
COLUMNS = ("path", "label", "class", "confidence", "is_ood", "reason")
ROW_GROUP = 10_000  # rows that Parquet holds in memory


def choose_format(wanted: Format | None, out: Path | None, terminal: bool) -> Format:
    """The format asked for, else the one that the file's name says, else a table on a terminal and CSV elsewhere."""
    if wanted is None and out is not None:
        if out.suffix not in SUFFIXES:
            raise MacsError(f"{out} does not say its format; end it in {', '.join(SUFFIXES)}, or give --format.")
        wanted = SUFFIXES[out.suffix]
    chosen = wanted or ("table" if terminal else "csv")
    if chosen == "parquet":
        if out is None:
            raise MacsError("Parquet is written to a file; name one with --out.")
        if find_spec("pyarrow") is None:
            raise MacsError("Parquet needs pyarrow: pip install 'macs-ood[parquet]'.")
    return chosen


def write_file(rows: "Iterable[Row]", path: Path, form: Format) -> None:
    """All rows into a file."""
    if form == "parquet":
        write_parquet(rows, path)
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            TEXT[form](rows, file)


def write_table(rows: "Iterable[Row]", file: TextIO) -> None:
    """Lines of fixed width; the path, of which nobody knows the width in advance, comes last."""
    print(f"{'verdict':8} {'confidence':>10}  {'class':20} path", file=file)
    for row in rows:
        if row.is_ood is None:
            line = f"{'failed':8} {'-':>10}  {'-':20} {row.path}: {row.reason}"
        else:
            line = f"{'OOD' if row.is_ood else 'ID':8} {row.confidence:>10.4f}  {row.name:20} {row.path}"
        print(printable(line), file=file)


def write_csv(rows: "Iterable[Row]", file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(json.dumps(value) if isinstance(value, bool) else value for value in _values(row))


def write_json_lines(rows: "Iterable[Row]", file: TextIO) -> None:
    for row in rows:
        told = dict(zip(COLUMNS, _values(row), strict=True))
        if row.confidence is not None and not math.isfinite(row.confidence):  # JSON has no word for it
            told["confidence"] = None
        print(json.dumps(told), file=file)


def write_parquet(rows: "Iterable[Row]", path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    from macs.data.walking import in_batches

    types = (pa.string(), pa.int64(), pa.string(), pa.float32(), pa.bool_(), pa.string())
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    with ParquetWriter(path, schema) as writer:
        for batch in in_batches(rows, ROW_GROUP):
            columns = zip(*map(_values, batch), strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _values(row: "Row") -> list[Any]:
    """The fields of a row, its texts such that any encoding of Unicode can write them."""
    return [whole(value) if isinstance(value, str) else value for value in astuple(row)]


TEXT: dict[str, Callable[..., None]] = {"table": write_table, "csv": write_csv, "jsonl": write_json_lines}


class Count:
    """Rows passed through, with how many there were, how many are OOD and how many failed."""

    def __init__(self) -> None:
        self.rows = self.ood = self.failed = 0

    def __str__(self) -> str:
        failed = f"{self.failed:,} that could not be read and {'says' if self.failed == 1 else 'say'} why"
        known = self.rows - self.ood - self.failed
        return f"{self.rows:,} images: {known:,} ID, {self.ood:,} OOD" + (f", {failed}" if self.failed else "")

    def through(self, rows: "Iterable[Row]", heard: Callable[[], Any] = lambda: None) -> "Iterator[Row]":
        for row in rows:
            self.rows += 1
            self.ood += row.is_ood is True
            self.failed += row.is_ood is None
            heard()
            yield row
