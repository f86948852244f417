"""Parquet, written one group of rows at a time."""

from collections.abc import Iterable
from pathlib import Path

from macs.data.image_files import in_batches
from macs.detector.formats import output_format, values_of
from macs.predictions import COLUMNS, Verdict

ROW_GROUP = 10_000  # rows that are in memory at a time


@output_format("parquet", suffix=".parquet", binary=True, needs="pyarrow")
def write_parquet(rows: Iterable[Verdict], path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = (pa.string(), pa.int64(), pa.string(), *[pa.float32()] * 3, pa.bool_(), pa.string())
    schema = pa.schema(list(zip(COLUMNS, types, strict=True)))
    with ParquetWriter(path, schema) as writer:
        for batch in in_batches(rows, ROW_GROUP):
            columns = zip(*map(values_of, batch), strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
