"""The tables, read back from their text."""

import math
import re
from typing import Any

import pytest
from rich.markup import escape

from macs.core.errors import MacsError
from macs.evaluation import Evaluation, Protocol, Ranking, SetResult
from macs.evaluation.tables import percent, plain_text, short_names, with_error
from macs.metrics import FprRule, OODMetrics, available, shown


def numbers(auroc: float, rest: float = 0.5) -> OODMetrics:
    return OODMetrics(**{each.name: auroc if each.name == "auroc" else rest for each in available()})


def evaluation(score: str = "msp", auroc: float = 0.81, fpr_rule: FprRule = "first") -> Evaluation:
    sets = [
        SetResult("a [b] set", 3, numbers(auroc), [numbers(auroc - 0.01), numbers(auroc + 0.01)]),
        SetResult("far", 1234, numbers(0.91), [numbers(0.9), numbers(0.92)]),
    ]
    return Evaluation("my [id]", 5000, score, Protocol(trials=2, fpr_rule=fpr_rule), 0.5, [0.5, 0.6], sets)


def cells(text: str, first: str) -> list[list[str]]:
    """The rows of all tables that begin with so many words, cell by cell."""
    rows = ([cell.strip() for cell in line.strip("│ ").split("│")] for line in text.splitlines() if "│" in line)
    return [row[1:] for row in rows if row[0] == first]


def test_both_protocols_have_a_row_for_each_set_and_one_for_the_mean() -> None:
    text = plain_text(evaluation().table(["auroc"]))
    error = f"{100 * math.dist([0.8], [0.82]) / 2:.2f}"  # of two values: half their distance
    assert cells(text, "a [b] set") == [["3", "81.00"], ["3", f"81.00 ± {error}"]]
    assert cells(text, "far") == [["1,234", "91.00"], ["1,000", f"91.00 ± {error}"]]  # a fifth of 5,000 ID images
    assert cells(text, "mean") == [["", "86.00"], ["", f"86.00 ± {error}"]]
    words = " ".join(text.split())  # titles are broken where a table is narrow
    assert "Full sets: 5,000 ID images of my [id], score msp" in words
    assert "2 draws of 1,000 ID images and as many OOD" in words
    assert "ID accuracy 50.00% (draws: 55.00 ± 5.00)" in words


def test_columns_are_those_that_are_asked_for_and_say_what_they_mean() -> None:
    text = plain_text(evaluation().table(["fpr95_id", "auroc"]))
    assert re.search(r"OOD passed *┃", text) and re.search(r"ID kept ↓ *┃", text) and "AUPR ↑" not in text
    flat = " ".join(text.split())
    for metric in shown(["fpr95_id", "auroc"]):
        assert " ".join(metric.sentence.split()) in flat
    assert "The JSON output has AUPR, ID lost at 95% of OOD caught, AUPR-ID, AUPR-OUT, AUPR-IN as well." in flat
    everything = plain_text(evaluation().table([each.name for each in available()]), width=200)
    assert "The JSON output has" not in everything
    with pytest.raises(MacsError, match="did you mean 'auroc'"):
        evaluation().table(["aurco"])


@pytest.mark.parametrize(("rule", "words"), [("first", "that reaches 95%"), ("nearest", "as in the authors' code")])
def test_the_rule_of_fpr95_is_named(rule: Any, words: Any) -> None:
    assert f"The threshold of FPR95 is the {rule} one" in str(evaluation(fpr_rule=rule))
    assert words in str(evaluation(fpr_rule=rule))


def test_a_ranking_has_a_row_for_each_score_and_says_what_is_left_out() -> None:
    ranking = Ranking([evaluation("mine[1]", 0.99), evaluation("msp")], {"knn": "no [train]"}, "my [id]", 1200, ["vim"])
    text = plain_text(ranking.table(["auroc"]))
    assert cells(text, "mine[1]") == [["95.00"], ["99.00", "91.00"]]
    assert cells(text, "msp") == [["86.00"], ["81.00", "91.00"]]
    assert "Fitted to 1,200 training images of my [id]: vim." in text
    assert "knn is left out: no [train]" in text
    assert "5,000 ID images of my [id], accuracy 50.00%; OOD images: a [b] set 3, far 1,234" in text


def test_a_ranking_tells_both_fpr95_apart_set_by_set() -> None:
    def with_fpr(score: str, fpr95: float) -> Evaluation:
        sets = [
            SetResult(name, 9, OODMetrics(**{**numbers(0.5), "fpr95": fpr95 + i / 10, "fpr95_id": fpr95 / 2}), [])
            for i, name in enumerate(("photos/unknown_birds", "photos/unknown_fishes"))
        ]
        return Evaluation("id", 50, score, Protocol(), 0.5, [0.5], sets)

    text = plain_text(Ranking([with_fpr("msp", 0.2), with_fpr("knn", 0.4)], {}, "", 0, []).table(None))
    auroc, id_lost, ood_passed = text.split("Full sets: ")[2:]
    assert id_lost.startswith("ID lost at 95% of OOD caught ↓") and cells(id_lost, "knn") == [["40.00", "50.00"]]
    assert ood_passed.startswith("OOD passed at 95% of ID kept ↓") and cells(ood_passed, "msp") == [["10.00", "10.00"]]
    for table in (auroc, id_lost, ood_passed):
        assert "unknown_birds" in table and "unknown_fishes" in table


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["svhn", "textures"], ["svhn", "textures"]),
        (["photos/unknown_a", "photos/unknown_b"], ["unknown_a", "unknown_b"]),
        (["/d/x/far", "/d/x/near/fish"], ["far", "near/fish"]),
        ([r"C:\d\far", r"C:\d\near"], ["far", "near"]),
        (["photos", "photos/more"], ["photos", "photos/more"]),
        (["photos/unknown"], ["photos/unknown"]),
        (["a-very-long-name-of-a-set", "b"], ["a-ver…e-of-a-set", "b"]),
        (
            ["alike-1-alike-alike-alike", "alike-2-alike-alike-alike"],
            ["alike-1-alike-alike-alike", "alike-2-alike-alike-alike"],
        ),
    ],
)
def test_names_become_shorter_and_stay_distinct(names: list[str], expected: list[str]) -> None:
    assert short_names(names, 16) == expected


def test_numbers_for_people() -> None:
    assert percent(0.12345) == "12.35" and percent(1) == "100.00"
    assert with_error([0.1, 0.2, 0.3]) == "20.00 ± 5.77"  # 10 / sqrt(3)
    assert with_error([0.5]) == "50.00 ± nan"


def test_text_is_as_wide_as_is_asked_and_plain() -> None:
    text = plain_text("[bold]" + escape("[x]") + "[/bold] " + "word " * 50, width=40)
    assert "[x] word" in text and "\x1b" not in text and max(map(len, text.splitlines())) <= 40
