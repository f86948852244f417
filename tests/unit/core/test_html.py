"""Tables for notebooks: escaped, and as many cells as there are values."""

from xml.etree import ElementTree

from macs.core.html import table


def test_every_value_has_its_cell_and_nothing_from_outside_is_markup() -> None:
    page = table(["", "<b>"], [("<script>", 1), ("a", "x & y")], caption="A", note="B")
    tree = ElementTree.fromstring(f"<div>{page}</div>")
    assert [cell.text for cell in tree.iter("td")] == ["1", "x & y"]
    assert [cell.text for cell in tree.iter("th")] == [None, "<b>", "<script>", "a"]
    assert tree.find("script") is None and tree.findtext("p") == "B"
