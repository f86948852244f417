"""Every format read back by another reader."""

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from macs.core.errors import MacsError
from macs.detector import formats
from macs.detector.formats import choose_format, parquet
from macs.predictions import Count, Verdict

ROWS = [
    Verdict("a.png", 2, "cat", 0.75, 0.5, 0.25, False),
    Verdict('odd, "name"\n.png', 0, "dog", 0.1, 0.01, is_ood=True),
    Verdict("broken.png", reason="Cannot read the image broken.png: it is empty."),
]


def test_csv_is_read_back(tmp_path: Path) -> None:
    formats.formats["csv"].write_file(ROWS, tmp_path / "x.csv")
    with (tmp_path / "x.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "index", "class", "confidence", "p_value", "threshold", "is_ood", "reason"]
    assert list(rows[0].values()) == ["a.png", "2", "cat", "0.75", "0.5", "0.25", "false", ""]
    assert rows[1]["path"] == 'odd, "name"\\x0a.png' and rows[1]["is_ood"] == "true"
    assert list(rows[2].values()) == ["broken.png", *[""] * 6, ROWS[2].reason]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_text_in_csv_is_a_formula_or_steers_a_terminal(text: str) -> None:
    file = io.StringIO()
    row = Verdict(f"{text}.png", 0, f"{text}\x1b]0;\x07\x9b", -2.5, 0.5, is_ood=True, reason=text)
    formats.formats["csv"].write_stream([row, Verdict("a-b=c.png", 0, "'", -1e30, None, is_ood=False)], file)
    written = file.getvalue()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", written) and written.count("\n") == 3
    first, second = csv.DictReader(io.StringIO(written))
    for cell in (first["path"], first["class"], first["reason"]):
        assert cell[0] in "'\\" and text.lstrip() in cell
    assert first["class"].endswith("\\x1b]0;\\x07\\x9b")
    assert (float(first["confidence"]), first["is_ood"]) == (-2.5, "true")
    assert (second["path"], second["class"], float(second["confidence"])) == ("a-b=c.png", "'", -1e30)


def test_json_lines_are_read_back(tmp_path: Path) -> None:
    formats.formats["jsonl"].write_file(ROWS, tmp_path / "x.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    expected = {"path": "a.png", "index": 2, "class": "cat", "confidence": 0.75, "p_value": 0.5, "threshold": 0.25}
    assert rows[0] == expected | {"is_ood": False, "reason": ""}
    assert rows[2]["is_ood"] is None and rows[2]["reason"] == ROWS[2].reason


def test_parquet_is_read_back_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP", 2)
    formats.formats["parquet"].write_file(ROWS, tmp_path / "x.parquet")
    file = pyarrow.parquet.ParquetFile(tmp_path / "x.parquet")
    assert file.num_row_groups == 2
    assert [str(kind) for kind in file.schema_arrow.types] == [
        *("string", "int64", "string", "float", "float", "float", "bool", "string")
    ]
    assert list(file.read().to_pylist()[1].values()) == [
        *(ROWS[1].path, 0, "dog", pytest.approx(0.1), pytest.approx(0.01), None, True, "")
    ]


def test_the_table_has_a_line_a_row_whatever_the_names_hold() -> None:
    file = io.StringIO()
    formats.formats["table"].write_stream([*ROWS, Verdict("\x1b[31mred.png", 0, "cat", 0.5, None, is_ood=True)], file)
    lines = file.getvalue().splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["ID", "0.7500", "0.5000", "cat", "a.png"]
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
def test_any_path_reason_and_class_can_be_written(tmp_path: Path, form: str, hostile: str) -> None:
    rows = [
        Verdict(hostile, 0, hostile, 0.5, None, is_ood=True),
        Verdict(hostile, reason=f"Cannot read {hostile}."),
        ROWS[0],
    ]
    formats.formats[form].write_file(rows, tmp_path / "x")
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
    if form == "csv":
        escaped = re.sub(r"[\x00-\x1f]", lambda match: f"\\x{ord(match[0]):02x}", escaped)
    assert [row["path"] for row in found] == [escaped, escaped, "a.png"]
    assert found[0]["class"] == escaped and found[1]["reason"] == f"Cannot read {escaped}."


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_confidence_that_is_no_number_is_null_in_json(value: float) -> None:
    file = io.StringIO()
    formats.formats["jsonl"].write_stream([Verdict("x", 0, "cat", value, 0.5, is_ood=True)], file)
    assert '"confidence": null' in file.getvalue()


def test_rows_are_written_as_they_come() -> None:
    """A reader at the other end of a pipe sees the first row before the second is made."""
    for form in (each for each in formats.formats.entries().values() if not each.binary):
        file = io.StringIO()
        seen: list[str] = []

        def slow(file: io.StringIO = file, seen: list[str] = seen) -> Iterator[Verdict]:
            for row in ROWS:
                seen.append(file.getvalue())
                yield row

        form.write_stream(slow(), file)
        assert "a.png" not in seen[0] and "a.png" in seen[1]


def test_the_format_is_the_one_asked_for_or_the_files_or_the_terminals() -> None:
    assert choose_format(None, None, terminal=True).name == "table"
    assert choose_format(None, None, terminal=False).name == "csv"
    assert choose_format(None, Path("x.parquet"), terminal=True).name == "parquet"
    assert choose_format("jsonl", Path("x.csv"), terminal=True).name == "jsonl"


def test_a_format_that_cannot_be_written_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MacsError, match=r"x\.xls has no suffix of a known format"):
        choose_format(None, Path("x.xls"), terminal=True)
    with pytest.raises(MacsError, match="--out"):
        choose_format("parquet", None, terminal=True)
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    with pytest.raises(MacsError, match=r"macs-ood\[parquet\]"):
        choose_format("parquet", Path("x"), terminal=True)


def test_rows_are_counted_on_their_way() -> None:
    count = Count()
    assert list(count.through(ROWS)) == ROWS and (count.rows, count.ood, count.failed) == (3, 1, 1)
    assert str(count) == "3 images: 1 ID, 1 OOD, 1 could not be read (its row gives the reason)"


OUTSIDE = """
from macs.detector.formats import output_format, values_of


@output_format("tsv", suffix=".tsv")
def write_tsv(rows, file):
    for row in rows:
        print(*values_of(row), sep="\\t", file=file)
"""


def test_a_format_of_the_users_own_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tabs.py").write_text(OUTSIDE)
    monkeypatch.chdir(tmp_path)
    chosen = choose_format("tabs:write_tsv", tmp_path / "x.tsv", terminal=True)
    chosen.write_file(ROWS[:1], tmp_path / "x.tsv")
    assert (tmp_path / "x.tsv").read_text() == "a.png\t2\tcat\t0.75\t0.5\t0.25\tFalse\t\n"
    assert choose_format(None, tmp_path / "x.tsv", terminal=True) is chosen
    monkeypatch.delitem(formats.formats._entries, "tsv")


def test_what_is_no_format_is_refused() -> None:
    with pytest.raises(MacsError, match="did you mean 'csv'"):
        choose_format("cvs", None, terminal=True)
    with pytest.raises(MacsError, match="json:dumps is not an output format"):
        choose_format("json:dumps", None, terminal=True)
