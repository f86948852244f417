"""Every format read back by another reader."""

import csv
import io
import json
import math
import os
from pathlib import Path

import pyarrow.parquet
import pytest

from macs.core.errors import MacsError
from macs.detector import writers
from macs.detector.stream import Row
from macs.detector.writers import Count, choose_format, write_file

ROWS = [
    Row("a.png", 2, "cat", 0.75, False),
    Row('odd, "name"\n.png', 0, "dog", 0.1, True),
    Row("broken.png", reason="Cannot read the image broken.png: it is empty."),
]


def test_csv_is_read_back(tmp_path):
    write_file(ROWS, tmp_path / "x.csv", "csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "class", "confidence", "is_ood", "reason"]
    assert list(rows[0].values()) == ["a.png", "2", "cat", "0.75", "false", ""]
    assert rows[1]["path"] == ROWS[1].path and rows[1]["is_ood"] == "true"
    assert list(rows[2].values()) == ["broken.png", "", "", "", "", ROWS[2].reason]


def test_json_lines_are_read_back(tmp_path):
    write_file(ROWS, tmp_path / "x.jsonl", "jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    expected = {"path": "a.png", "label": 2, "class": "cat", "confidence": 0.75, "is_ood": False, "reason": ""}
    assert rows[0] == expected
    assert rows[2]["is_ood"] is None and rows[2]["reason"] == ROWS[2].reason


def test_parquet_is_read_back_in_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "ROW_GROUP", 2)
    write_file(ROWS, tmp_path / "x.parquet", "parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "x.parquet")
    assert file.num_row_groups == 2
    assert [str(kind) for kind in file.schema_arrow.types] == ["string", "int64", "string", "float", "bool", "string"]
    assert list(file.read().to_pylist()[1].values()) == [ROWS[1].path, 0, "dog", pytest.approx(0.1), True, ""]


def test_the_table_has_a_line_a_row_whatever_the_names_hold():
    file = io.StringIO()
    writers.write_table([*ROWS, Row("\x1b[31mred.png", 0, "cat", 0.5, True)], file)
    lines = file.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["ID", "0.7500", "cat", "a.png"]
    assert lines[3].startswith("failed") and lines[3].endswith("it is empty.")
    assert "\x1b" not in file.getvalue()


HOSTILE = [
    os.fsdecode(b"caf\xe9.png"),
    "\ud800 half",
    "nul\0",
    "\x1b]0;title\x07\r\n\u2028\u202e",
    '",";\n=1+1',
    "\U0001f408 猫",
    " ",
]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("form", ["csv", "jsonl", "table", "parquet"])
def test_any_path_reason_and_class_can_be_written(tmp_path, form, hostile):
    rows = [Row(hostile, 0, hostile, 0.5, True), Row(hostile, reason=f"Cannot read {hostile}."), ROWS[0]]
    write_file(rows, tmp_path / "x", form)
    if form == "table":
        lines = (tmp_path / "x").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 4 and not any("\x1b" in line for line in lines)
        return
    if form == "csv":
        with (tmp_path / "x").open(newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(file, strict=True))
    elif form == "jsonl":
        found = [json.loads(line) for line in (tmp_path / "x").read_text(encoding="utf-8").split("\n")[:-1]]
    else:
        found = pyarrow.parquet.read_table(tmp_path / "x").to_pylist()
    escaped = {HOSTILE[0]: "caf\\xe9.png", HOSTILE[1]: "\\ud800 half", HOSTILE[2]: "nul\\x00"}.get(hostile, hostile)
    assert [row["path"] for row in found] == [escaped, escaped, "a.png"]
    assert found[0]["class"] == escaped and found[1]["reason"] == f"Cannot read {escaped}."


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_confidence_that_is_no_number_is_null_in_json(value):
    file = io.StringIO()
    writers.write_json_lines([Row("x", 0, "cat", value, True)], file)
    assert '"confidence": null' in file.getvalue()


def test_rows_are_written_as_they_come():
    """A reader at the other end of a pipe sees the first row before the second is made."""
    for write in writers.TEXT.values():
        file, seen = io.StringIO(), []

        def slow(file: io.StringIO = file, seen: list[str] = seen):
            for row in ROWS:
                seen.append(file.getvalue())
                yield row

        write(slow(), file)
        assert "a.png" not in seen[0] and "a.png" in seen[1]


def test_the_format_is_the_one_asked_for_or_the_files_or_the_terminals():
    assert choose_format(None, None, terminal=True) == "table"
    assert choose_format(None, None, terminal=False) == "csv"
    assert choose_format(None, Path("x.parquet"), terminal=True) == "parquet"
    assert choose_format("jsonl", Path("x.csv"), terminal=True) == "jsonl"


def test_a_format_that_cannot_be_written_is_refused_at_once(monkeypatch):
    with pytest.raises(MacsError, match=r"x\.xls does not say its format"):
        choose_format(None, Path("x.xls"), terminal=True)
    with pytest.raises(MacsError, match="--out"):
        choose_format("parquet", None, terminal=True)
    monkeypatch.setattr(writers, "find_spec", lambda name: None)
    with pytest.raises(MacsError, match=r"macs-ood\[parquet\]"):
        choose_format("parquet", Path("x"), terminal=True)


def test_rows_are_counted_on_their_way():
    count, heard = Count(), []
    assert list(count.through(ROWS, lambda: heard.append(count.rows))) == ROWS
    assert (count.rows, count.ood, count.failed, heard) == (3, 1, 1, [1, 2, 3])
    assert str(count) == "3 images: 1 ID, 1 OOD, 1 that could not be read and says why"
