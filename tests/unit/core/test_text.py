"""Names from elsewhere on a terminal and in a file."""

import os
from xml.etree import ElementTree

import pytest

from macs.core.text import html_table, in_a_cell, printable, whole


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 猫 🐈", "plain é 猫 🐈"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("two\nlines\r", "two\\x0alines\\x0d"),
        (os.fsdecode(b"\xff.png"), "\\xff.png"),
        ("\ud800", "\\ud800"),
        ("gnp.\u202eexe", "gnp.\\u202eexe"),
    ],
)
def test_nothing_that_steers_a_terminal_is_printed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_cell_of_markdown_brings_no_markup() -> None:
    text = "a|b\n<img src=x> [here](https://example.org) `x` &lt;"
    assert in_a_cell(text) == r"a\|b\x0a&lt;img src=x> \[here](https://example.org) 'x' &amp;lt;"


def test_any_text_can_be_written() -> None:
    text = "".join(map(chr, range(0x110000)))
    written = whole(text).encode("utf-8").decode("utf-8")
    assert "\0" not in written and "\\udfff" in written and whole("a\nb") == "a\nb"


def test_every_value_has_its_cell_and_nothing_from_outside_is_markup() -> None:
    page = html_table(["", "<b>"], [("<script>", 1), ("a", "x & y")], caption="A", note="B")
    tree = ElementTree.fromstring(f"<div>{page}</div>")
    assert [cell.text for cell in tree.iter("td")] == ["1", "x & y"]
    assert [cell.text for cell in tree.iter("th")] == [None, "<b>", "<script>", "a"]
    assert tree.find("script") is None and tree.findtext("p") == "B"
