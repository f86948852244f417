"""The paper's numbers are complete, read off correctly, and agree wherever the paper prints one twice."""

from collections.abc import Callable
from itertools import product
from statistics import mean
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.research import paper_numbers as numbers
from macs.research.paper_numbers import PrintedNumber

METHODS = ("oe", "energy", "mixoe", "divoe", "macs", "macs*")
DETECTION = ("auroc", "aupr", "fpr95")
CIFAR, OTHERS = ("cifar10", "cifar100"), ("svhn", "imagenet32")
OOD = ("textures", "isun", "lsun-c", "svhn", "places365")
OOD_WITHOUT_SVHN = ("textures", "isun", "lsun-c", "places365")
PAIR, TRIO = ("wrn-40-2", "allconv"), ("allconv", "resnet-18", "densenet-121")
ROUNDING = 0.01 + 1e-9  # two decimals in the average and in the averaged: half a digit each


def best(cell: PrintedNumber) -> float:
    return cell.mean if cell.likely is None else cell.likely


def name(cell: PrintedNumber) -> str:
    return f"{cell.table}-{cell.id}-{cell.net}-{cell.method}-{cell.metric}"


def average_cells() -> list[PrintedNumber]:
    """The averages whose parts the paper prints as well, in Tables 3 and 4."""
    found = [cell for number in (1, 2, 6, 7) for cell in numbers.table(number)]
    return [cell for cell in found if cell.net in PAIR and cell.metric in DETECTION]


def parts(average: PrintedNumber) -> list[PrintedNumber]:
    detail = 3 if average.id in CIFAR else 4
    return numbers.cells(detail, id=average.id, net=average.net, method=average.method, metric=average.metric)


def curve(id: str, net: str, metric: str) -> dict[float, float]:
    (found,) = [c for c in numbers.margin_curves() if (c.id, c.net, c.metric) == (id, net, metric)]
    return dict(zip(found.margins, found.values, strict=True))


@pytest.mark.parametrize(
    ("number", "count", "axes"),
    [
        (1, 48, ((None,), CIFAR, ("wrn-40-2",), METHODS, (*DETECTION, "accuracy"))),
        (2, 48, ((None,), OTHERS, ("wrn-40-2",), METHODS, (*DETECTION, "accuracy"))),
        (3, 360, (OOD, CIFAR, PAIR, METHODS, DETECTION)),
        (4, 288, (OOD_WITHOUT_SVHN, OTHERS, PAIR, METHODS, DETECTION)),
        (6, 108, ((None,), CIFAR, TRIO, METHODS, DETECTION)),
        (7, 108, ((None,), OTHERS, TRIO, METHODS, DETECTION)),
    ],
)
def test_a_table_has_every_combination_once(number: int, count: int, axes: tuple[Any, ...]) -> None:
    keys = [(c.ood, c.id, c.net, c.method, c.metric) for c in numbers.table(number)]
    assert len(keys) == count
    assert sorted(keys, key=str) == sorted(product(*axes), key=str)


def test_margins_curves_bars_and_boxes_have_every_combination_once() -> None:
    ids = CIFAR + OTHERS
    assert sorted((m.id, m.net) for m in numbers.margins()) == sorted(product(ids, ("wrn-40-2", *TRIO)))
    curves = numbers.margin_curves()
    assert sorted((c.id, c.net, c.metric) for c in curves) == sorted(product(ids, PAIR, DETECTION))
    assert all(c.margins == tuple(step / 10 for step in range(10)) and len(c.values) == 10 for c in curves)
    assert sorted((b.id, b.metric, b.bounded) for b in numbers.bars()) == sorted(product(ids, DETECTION, (False, True)))
    assert [(b.method, b.data) for b in numbers.boxes()] == list(product(("msp", "oe", "macs"), ("cifar100", "isun")))


# Read off the paper by eye, many where no other number repeats them: errors, accuracies, odd print (".38", "0.").
READ_OFF = [
    (1, None, "cifar10", "wrn-40-2", "oe", "aupr", 98.6, 0.05),
    (1, None, "cifar10", "wrn-40-2", "mixoe", "fpr95", 41.46, 0.36),
    (1, None, "cifar10", "wrn-40-2", "divoe", "accuracy", 95.01, 0.05),
    (1, None, "cifar10", "wrn-40-2", "macs", "accuracy", 95.28, 0.06),
    (1, None, "cifar100", "wrn-40-2", "oe", "accuracy", 75.75, 0.11),
    (1, None, "cifar100", "wrn-40-2", "energy", "auroc", 87.567, 0.06),
    (1, None, "cifar100", "wrn-40-2", "mixoe", "accuracy", 75.17, 0.18),
    (1, None, "cifar100", "wrn-40-2", "macs", "accuracy", 75.53, 0.07),
    (1, None, "cifar100", "wrn-40-2", "macs*", "accuracy", 76.12, 0.04),
    (2, None, "svhn", "wrn-40-2", "mixoe", "accuracy", 88.59, 0.36),
    (2, None, "svhn", "wrn-40-2", "macs*", "accuracy", 95.4, 0.02),
    (2, None, "imagenet32", "wrn-40-2", "energy", "fpr95", 31.3, 0.1),
    (2, None, "imagenet32", "wrn-40-2", "energy", "accuracy", 32.26, 0.06),
    (2, None, "imagenet32", "wrn-40-2", "macs", "accuracy", 38.11, 0.1),
    (3, "textures", "cifar10", "wrn-40-2", "oe", "auroc", 98.4, 0.05),
    (3, "textures", "cifar100", "allconv", "energy", "fpr95", 68.19, 0.85),
    (3, "isun", "cifar10", "wrn-40-2", "mixoe", "fpr95", 43.64, 1.04),
    (3, "isun", "cifar100", "wrn-40-2", "macs", "fpr95", 49.9, 0.3),
    (3, "lsun-c", "cifar10", "allconv", "macs", "fpr95", 1.11, 0.06),
    (3, "svhn", "cifar100", "wrn-40-2", "macs*", "aupr", 92.4, 0.2),
    (3, "svhn", "cifar10", "allconv", "divoe", "auroc", 98.0, 0.05),
    (3, "places365", "cifar10", "wrn-40-2", "mixoe", "auroc", 87.56, 0.2),
    (3, "places365", "cifar100", "allconv", "macs*", "fpr95", 53.65, 0.58),
    (4, "textures", "svhn", "wrn-40-2", "oe", "auroc", 99.75, 0.0),
    (4, "textures", "imagenet32", "wrn-40-2", "oe", "aupr", 7.24, 0.03),
    (4, "isun", "svhn", "wrn-40-2", "oe", "aupr", 100.0, 0.0),
    (4, "isun", "imagenet32", "allconv", "macs*", "fpr95", 82.96, 0.13),
    (4, "lsun-c", "imagenet32", "wrn-40-2", "mixoe", "fpr95", 38.45, 0.12),
    (4, "places365", "svhn", "wrn-40-2", "oe", "aupr", 9.99, 0.0),
    (4, "places365", "imagenet32", "allconv", "macs*", "fpr95", 0.92, 0.05),
    (6, None, "cifar10", "allconv", "oe", "auroc", 97.9, 0.03),
    (6, None, "cifar100", "resnet-18", "mixoe", "fpr95", 61.74, 0.38),
    (6, None, "cifar10", "densenet-121", "mixoe", "aupr", 83.87, 0.15),
    (6, None, "cifar100", "densenet-121", "mixoe", "auroc", 74.18, 0.1),
    (6, None, "cifar10", "resnet-18", "macs*", "fpr95", 10.69, 0.13),
    (6, None, "cifar100", "densenet-121", "macs*", "fpr95", 49.89, 0.27),
    (7, None, "svhn", "resnet-18", "mixoe", "aupr", 88.8, 0.12),
    (7, None, "imagenet32", "resnet-18", "oe", "fpr95", 27.79, 0.04),
    (7, None, "imagenet32", "densenet-121", "macs", "fpr95", 27.0, 0.08),
    (7, None, "imagenet32", "densenet-121", "macs*", "auroc", 94.4, 0.2),
]


@pytest.mark.parametrize("row", READ_OFF, ids=lambda row: "-".join(map(str, row[:6])))
def test_a_cell_is_as_printed(row: tuple[Any, ...]) -> None:
    number, ood, id, net, method, metric, printed, error = row
    cell = numbers.cell(number, ood=ood, id=id, net=net, method=method, metric=metric)
    assert (cell.mean, cell.error) == (printed, error)


def test_figures_are_as_printed() -> None:
    assert {(m.id, m.net): m.margin for m in numbers.margins() if m.net == "densenet-121"} == {
        ("cifar10", "densenet-121"): 0.7,
        ("cifar100", "densenet-121"): 0.8,
        ("svhn", "densenet-121"): 0.9,
        ("imagenet32", "densenet-121"): 0.6,
    }
    assert curve("imagenet32", "allconv", "fpr95")[0.7] == 41.05
    assert curve("cifar10", "wrn-40-2", "aupr")[0.0] == 98.43
    unbounded = {(b.id, b.metric): b.value for b in numbers.bars() if not b.bounded}
    assert unbounded["cifar10", "aupr"] == 90.06
    assert unbounded["imagenet32", "fpr95"] == 40.54
    last = numbers.boxes()[-1]
    assert (last.median, last.whisker_high) == (0.21252813190221786, 0.8747148513793945)


@pytest.mark.parametrize(
    ("number", "means", "errors"),
    [
        (1, 3573.407, 6.23),
        (2, 3241.37, 2.13),
        (3, 25428.74, 74.85),
        (4, 19647.61, 12.59),
        (6, 7688.12, 17.48),
        (7, 7404.74, 3.35),
    ],
)
def test_a_table_adds_up_to_the_sum_of_all_numbers_in_its_source(number: int, means: float, errors: float) -> None:
    cells = numbers.table(number)
    assert sum(c.mean for c in cells) == pytest.approx(means, abs=1e-6)
    assert sum(c.error for c in cells) == pytest.approx(errors, abs=1e-6)


def test_figures_4_and_5_add_up_to_the_sum_of_all_numbers_in_their_source() -> None:
    assert sum(sum(c.values) for c in numbers.margin_curves()) == pytest.approx(16654.54, abs=1e-6)
    assert sum(b.value for b in numbers.bars()) == pytest.approx(1658.39, abs=1e-6)


def test_percentages_and_errors_are_possible() -> None:
    cells = [cell for number in numbers.TABLES for cell in numbers.table(number)]
    assert all(0 <= cell.mean <= 100 and 0 <= cell.error < 1.1 for cell in cells)
    assert all(0 <= v <= 100 for c in numbers.margin_curves() for v in c.values)


def test_boxes_are_in_order() -> None:
    for b in numbers.boxes():
        assert 0 <= b.whisker_low < b.quartile_low < b.median < b.quartile_high < b.whisker_high <= 1


@pytest.mark.parametrize("average", [c for c in average_cells() if c.id != "imagenet32"], ids=name)
def test_an_average_misses_the_mean_of_its_parts_only_where_a_cell_is_doubted(average: PrintedNumber) -> None:
    inner = parts(average)
    assert sorted(c.ood for c in inner) == sorted(numbers.averaged_over(average.id))
    assert best(average) == pytest.approx(mean(map(best, inner)), abs=ROUNDING)
    fits = average.mean == pytest.approx(mean(c.mean for c in inner), abs=ROUNDING)
    assert fits == all(c.likely is None for c in [average, *inner])


@pytest.mark.parametrize("average", [c for c in average_cells() if c.id == "imagenet32"], ids=name)
def test_imagenet_averages_hide_a_fifth_set_that_all_but_mixoe_solve(average: PrintedNumber) -> None:
    assert len(parts(average)) == 4
    assert set(numbers.averaged_over("imagenet32")) - {c.ood for c in parts(average)} == {"svhn"}
    fifth = 5 * best(average) - sum(map(best, parts(average)))
    if average.method == "mixoe":
        assert 0 < fifth < 100
    else:
        assert fifth == pytest.approx(0 if average.metric == "fpr95" else 100, abs=9 * 0.005 + 0.03)


def test_the_doubted_cells_are_these() -> None:
    assert {(c.table, c.ood, c.id, c.net, c.method, c.metric, c.mean) for c in numbers.doubtful()} == {
        (1, None, "cifar100", "wrn-40-2", "energy", "auroc", 87.567),
        (2, None, "svhn", "wrn-40-2", "energy", "aupr", 98.93),
        (4, "textures", "imagenet32", "wrn-40-2", "oe", "aupr", 7.24),
        (4, "places365", "svhn", "wrn-40-2", "oe", "aupr", 9.99),
        (4, "lsun-c", "svhn", "wrn-40-2", "mixoe", "auroc", 98.31),
        (4, "lsun-c", "svhn", "wrn-40-2", "mixoe", "aupr", 97.86),
        (4, "lsun-c", "svhn", "wrn-40-2", "mixoe", "fpr95", 6.89),
        (6, None, "cifar100", "resnet-18", "divoe", "fpr95", 50.24),
        (7, None, "imagenet32", "densenet-121", "energy", "auroc", 92.77),
        (7, None, "imagenet32", "densenet-121", "macs*", "auroc", 94.4),
    }
    assert all(c.note for c in numbers.doubtful())


def test_macs_rows_are_points_of_figure_4() -> None:
    chosen = {(m.id, m.net): m.margin for m in numbers.margins()}
    rows = [c for c in average_cells() if c.method in ("macs", "macs*")]
    assert len(rows) == 2 * 4 * 2 * 3  # methods, ID sets, networks, metrics
    for c in rows:
        assert curve(c.id, c.net, c.metric)[0.5 if c.method == "macs" else chosen[c.id, c.net]] == c.mean


def test_macs_and_its_star_are_one_model_where_the_chosen_margin_is_a_half() -> None:
    for m in [m for m in numbers.margins() if m.margin == 0.5]:
        for number in numbers.TABLES:
            here = [c for c in numbers.table(number) if (c.id, c.net) == (m.id, m.net)]
            plain = [(c.ood, c.metric, c.mean, c.error) for c in here if c.method == "macs"]
            assert plain == [(c.ood, c.metric, c.mean, c.error) for c in here if c.method == "macs*"]


def test_bars_with_margin_are_the_macs_rows() -> None:
    for b in [b for b in numbers.bars() if b.bounded]:
        assert b.value == numbers.cell(1 if b.id in CIFAR else 2, id=b.id, method="macs", metric=b.metric).mean


@pytest.mark.parametrize(("metric", "gain"), [("auroc", 2.73), ("aupr", 3.26), ("fpr95", 9.06)])
def test_the_gains_of_the_conclusion_are_those_over_oe_on_imagenet(metric: str, gain: float) -> None:
    ours, oe = (numbers.cell(2, id="imagenet32", method=m, metric=metric).mean for m in ("macs*", "oe"))
    assert abs(ours - oe) == pytest.approx(gain, abs=1e-9)


def test_every_part_says_what_it_shows() -> None:
    for part in [f"table {n}" for n in range(1, 8)] + [f"figure {n}" for n in (1, 3, 4, 5)]:
        assert len(numbers.about(part)["title"]) > 20
        assert numbers.about(part)["shares"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: numbers.table(5), "margins()"),
        (lambda: numbers.table(8), "table 7"),
        (lambda: numbers.about("figure 2"), "figure 1"),
        (lambda: numbers.averaged_over("cifar"), "'cifar10'"),
        (lambda: numbers.cell(1, id="cifar10", methd="oe"), "'method'"),
        (lambda: numbers.cell(1, id="cifar-10", method="oe", metric="auroc"), "'cifar10'"),
        (lambda: numbers.cell(3, ood="svhn", id="cifar10", method="oe"), "6 cells.*net and metric"),
        (lambda: numbers.cell(4, ood="svhn", id="imagenet32", method="oe"), "no ood .*'svhn'"),
    ],
)
def test_a_wrong_question_is_answered_by_what_to_ask_instead(ask: Callable[..., Any], words: str) -> None:
    with pytest.raises(MacsError, match=words.replace("()", r"\(\)")):
        ask()


def test_a_caller_cannot_change_the_numbers() -> None:
    numbers.table(1).clear()
    numbers.margins().clear()
    assert (len(numbers.table(1)), len(numbers.margins())) == (48, 16)
