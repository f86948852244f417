"""Rows are counted on their way, as they are in the end by a loop over all of them."""

from typing import Any

import pytest

from macs.detector.counting import Count
from macs.detector.verdicts import Prediction

KNOWN, UNKNOWN = Prediction("a.png", 2, "cat", 0.75, 0.5, False), Prediction("b.png", 0, "dog", 0.25, 0.01, True)
BROKEN = Prediction("c.png", reason="it is empty")


def test_rows_are_counted_one_by_one_before_they_are_handed_on() -> None:
    count, heard = Count(), []
    rows = count.through(iter([KNOWN, UNKNOWN, BROKEN]), lambda: heard.append((count.rows, count.ood, count.failed)))
    assert count.rows == 0 and next(rows) is KNOWN and heard == [(1, 0, 0)]
    assert list(rows) == [UNKNOWN, BROKEN] and heard == [(1, 0, 0), (2, 1, 0), (3, 1, 1)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "0 images: 0 ID, 0 OOD"),
        ([KNOWN, UNKNOWN], "2 images: 1 ID, 1 OOD"),
        ([KNOWN, BROKEN], "2 images: 1 ID, 0 OOD, 1 could not be read (its row gives the reason)"),
        (
            [BROKEN] * 1200 + [UNKNOWN],
            "1,201 images: 0 ID, 1 OOD, 1,200 could not be read (their rows give the reason)",
        ),
    ],
)
def test_the_count_in_words(rows: Any, words: Any) -> None:
    count = Count()
    assert list(count.through(rows)) == rows and str(count) == words
