"""The pages of the documentation: by task, and short enough to be read."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from repository import ROOT

NAV: list[dict[str, list[Any]]] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
LONG = ("Appendix",)  # what is looked up rather than read
MOST_WORDS = 2500


def pages(section: str) -> Iterator[str]:
    (entries,) = (each[section] for each in NAV if section in each)
    for entry in entries:
        page = entry if isinstance(entry, str) else next(iter(entry.values()))
        if (ROOT / "docs" / page).is_file():  # others are made from the code or from files in the root
            yield page


READ = [page for each in NAV for section in each if section not in LONG for page in pages(section)]


@pytest.mark.parametrize("page", READ)
def test_a_page_that_is_read_has_at_most_2500_words(page: str) -> None:
    assert len((ROOT / "docs" / page).read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_every_page_is_in_one_section() -> None:
    listed = [*READ, *(page for section in LONG for page in pages(section))]
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
