"""Rows in files: .npz and .npy arrays, .parquet and .csv tables, read a part at a time.

An .npz file names its arrays features, logits, probabilities and labels, a table its columns feature_0, logit_3 and so
on (macs/detector/rows.py); a .npy file is the one array that is asked for. Nothing is unpickled.
"""

import csv
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from macs.core.errors import MacsError, first_line
from macs.core.files import input_file
from macs.data.compatibility import few
from macs.data.image_files import in_batches
from macs.detector.rows import KINDS, LABELS, Columns, Rows, arranged, matrix

SUFFIXES = (".npz", ".npy", ".parquet", ".csv")
HEAD = ("weight", "bias")  # of a last layer
PART = 16_384  # rows of a table that are in memory at a time
MOST, SWELLING = 2**28, 100  # bytes that a file may unpack to, or times its own size; embeddings shrink to a half


def tables_in(path: str | Path, columns: Columns | None = None, kind: str = "features") -> Iterator[Rows]:
    """The rows of a file in parts, without labels; `kind` is what a .npy file holds, unless `columns` has one array."""
    if columns is not None and len(columns.takes) == 1:
        (kind,) = columns.takes
    for arrays, names in _parts(path, kind):
        yield Rows.of(arrays, name=str(path), labelled=False).named(names)


def rows_in(files: Mapping[str, str | Path], classes: Sequence[str] = ()) -> Rows:
    """All rows of one file, or of two that hold different arrays of the same rows, by what each holds if it is a .npy.

    `classes` are the names of the logits' columns, which labels that are text refer to.
    """
    found: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    for kind, path in files.items():
        parts, called = zip(*_parts(path, kind), strict=True)
        own = {
            name: np.concatenate([part[name] for part in parts]) if parts[1:] else parts[0][name] for name in parts[0]
        }
        if twice := sorted(found.keys() & own.keys()):
            raise MacsError(f"{' and '.join(map(str, files.values()))} both hold {twice[0]}; give it once.")
        found |= own
        names = names or called[0]
    return Rows.of(found, classes=classes, name=str(next(iter(files.values())))).named(names)


def _parts(path: str | Path, kind: str) -> Iterator[tuple[dict[str, Any], tuple[str, ...]]]:
    """The arrays of a file by their names, a part of the rows at a time, and the names of the features' columns."""
    path = input_file(path, "file of features or logits")
    if path.suffix not in SUFFIXES:
        raise MacsError(f"{path} does not hold rows of numbers; give a file that ends in {', '.join(SUFFIXES)}.")
    if path.suffix in (".npz", ".npy"):
        yield _arrays(path, kind), ()
        return
    empty = True
    for names, values in _parquet(path) if path.suffix == ".parquet" else _csv(path):
        yield arranged(names, values.__getitem__, str(path))
        empty = False
    if empty:
        raise MacsError(f"{path} has no rows; give some.")


def head_in(path: str | Path) -> tuple[Any, Any]:
    """Weights and bias of a last layer in a .npz file."""
    arrays = _saved(input_file(path, "file of weights"), HEAD)
    if isinstance(arrays, np.ndarray) or not {*HEAD} <= arrays.keys():
        raise MacsError(f"{path} must be a .npz file with the arrays weight (K x D) and bias (K).")
    return arrays["weight"], arrays["bias"]


def _saved(path: Path, wanted: Sequence[str]) -> Any:
    """An array of a .npy file, left on disk, or the arrays of a .npz file by their names; None where not wanted."""
    try:
        with np.errstate(over="raise"):  # numpy does not check the product of a forged shape
            content = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(content, np.ndarray):
                return content
            with content:
                sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in content.zip.infolist()}
                _refuse_swelling(path, sum(sizes.get(name, 0) for name in wanted))
                return {name: content[name] if name in wanted else None for name in content.files}
    except MacsError:
        raise
    except (OSError, ValueError, EOFError, FloatingPointError, zipfile.BadZipFile, zlib.error, MemoryError) as error:
        if any(word in str(error) for word in ("allow_pickle", "pickled", "Python objects")):
            raise MacsError(
                f"{path} holds Python objects, which are never unpickled; save arrays of numbers, with numpy.savez."
            ) from None
        raise MacsError(f"{path} is damaged or not a file of numpy: {first_line(error)}; save it again.") from None


def _arrays(path: Path, kind: str) -> dict[str, Any]:
    """The arrays of a .npz file by their names, or the one of a .npy file under the name `kind`."""
    saved = _saved(path, (*KINDS, *LABELS))
    if isinstance(saved, np.ndarray):
        saved = {kind: matrix(saved, f"The {kind} of {path}")}
    if not saved.keys() & {*KINDS}:
        raise MacsError(f"{path} has the arrays {few([*saved]) or 'none'}; call them {', '.join(KINDS)}.")
    return {name: array for name, array in saved.items() if array is not None}


def _refuse_swelling(path: Path, size: int) -> None:
    """Refuse a file whose rows take far more memory than the file, before they are unpacked."""
    if size > max(MOST, SWELLING * path.stat().st_size):
        raise MacsError(
            f"{path} would take {size / 1e6:,.0f} MB of memory, over {SWELLING} times its own size; write it again."
        )


def _parquet(path: Path) -> Iterator[tuple[list[str], list[Any]]]:
    """The columns' names, and their values a part at a time."""
    if find_spec("pyarrow") is None:
        raise MacsError(f"Cannot read {path} without pyarrow: pip install 'macs-ood[parquet]'.")
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(path) as table:
            groups = (table.metadata.row_group(place) for place in range(table.metadata.num_row_groups))
            values = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
            _refuse_swelling(path, 8 * values)
            for entry in table.schema_arrow:
                if pa.types.is_struct(entry.type) or pa.types.is_map(entry.type):
                    raise MacsError(
                        f"The column {entry.name!r} of {path} is nested; give each of its fields a column of its own."
                    )
            for batch in table.iter_batches(PART):
                lists = [pa.types.is_list(each.type) or pa.types.is_fixed_size_list(each.type) for each in batch.schema]
                yield (
                    list(batch.schema.names),
                    [
                        column.to_pylist() if is_list else column.to_numpy(zero_copy_only=False)
                        for column, is_list in zip(batch.columns, lists, strict=True)
                    ],
                )
    except (pa.ArrowException, OSError) as error:
        raise MacsError(f"{path} is damaged or not a Parquet file: {first_line(error)}; write it again.") from None


def _csv(path: Path) -> Iterator[tuple[list[str], list[Any]]]:
    """The columns' names, and their values a part at a time; an empty cell is not a number."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            names = next(reader, [])
            if not names:
                raise MacsError(f"{path} is empty; give it a line of column names and one line per row.")
            texts: set[int] | None = None
            start = 0
            for part in in_batches(reader, PART):
                for place, row in enumerate(part, start):
                    if len(row) != len(names):
                        raise MacsError(
                            f"{path} has {len(names)} columns, but its row {place} has {len(row)} cells; write it "
                            "again."
                        )
                start += len(part)
                cells = list(zip(*part, strict=True))
                if texts is None:
                    texts = {place for place, column in enumerate(cells) if _is_text(column)}
                yield names, [np.array(c) if i in texts else _numbers(c) for i, c in enumerate(cells)]
    except (UnicodeError, csv.Error) as error:
        raise MacsError(f"{path} is not a CSV file in UTF-8: {first_line(error)}; write it again.") from None


def _is_text(cells: tuple[str, ...]) -> bool:
    """Whether there are cells, and none is a number; a single one that is none is a row that cannot be judged."""
    given = [*filter(None, cells)]
    return bool(given) and not any(map(_is_number, given))


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return "_" not in cell and cell.isascii()  # only Python takes 1_0 for 10


def _numbers(cells: tuple[str, ...]) -> Any:
    text = "".join(cells)
    if "_" not in text and text.isascii():
        with suppress(ValueError):
            return np.array([float(cell or "nan") for cell in cells])
    return np.array([float(cell or "nan") if _is_number(cell) else np.nan for cell in cells])
