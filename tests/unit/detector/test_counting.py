"""Rows are counted on their way, as they are in the end by a loop over all of them."""

from typing import Any

import pytest

from macs.detector.verdicts import Count, Verdict

KNOWN, UNKNOWN = (
    Verdict("a.png", 2, "cat", 0.75, 0.5, is_ood=False),
    Verdict("b.png", 0, "dog", 0.25, 0.01, is_ood=True),
)
BROKEN = Verdict("c.png", reason="it is empty")


def test_rows_are_counted_one_by_one_before_they_are_handed_on() -> None:
    count = Count()
    rows = count.through(iter([KNOWN, UNKNOWN, BROKEN]))
    assert count.rows == 0
    for row, expected in ((KNOWN, (1, 0, 0)), (UNKNOWN, (2, 1, 0)), (BROKEN, (3, 1, 1))):
        assert next(rows) is row and (count.rows, count.ood, count.failed) == expected


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
