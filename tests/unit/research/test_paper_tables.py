"""Our numbers beside the paper's: in the right place, never mixed, and compared only where they measure the same."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

from macs.evaluation import measure
from macs.evaluation.tables import plain_text
from macs.experiments.cells import Result
from macs.research import paper_numbers as numbers
from macs.research.paper_grid import FULL, PARTS, SMOKE, Only, PaperScale, PaperTraining, trainings
from macs.research.paper_publication import publication_of, publish_parts
from macs.research.paper_runs import Reproduction, Setup
from macs.research.paper_tables import ComparedNumber, entries, ranks, tables_of
from macs.research.publication import tex
from repository import ROOT

ONLY = Only(("cifar10", "svhn"), ("wrn-40-2", "allconv"))
NAMES = ["table1", "table2", "table3", "table4", "table5", "table6", "figure4", "figure5"]


def result(seed: int, names: tuple[str, ...]) -> Result:
    """Random confidences and what follows from them."""
    random = np.random.default_rng(seed)
    conf = {"id": random.beta(5, 2, 60).astype(np.float32)}
    conf |= {name: random.beta(2, 5, 40).astype(np.float32) for name in names}
    ood = {name: conf[name] for name in names}
    test = measure("id", random.random(60) < 0.9, conf["id"], ood)
    validation = measure(
        "val", random.random(60) < 0.9, conf["id"], {"outliers": random.beta(2, 4, 40).astype(np.float32)}
    )
    return Result(validation, test, conf, (0.3,), str(seed))


def outcome(
    parts: list[str], scale: PaperScale = FULL, seeds: tuple[int, ...] = (0,), without: str = "", only: Only = ONLY
) -> Reproduction:
    made = Reproduction(Setup(scale, Path("out")), seeds, only)
    for number, training in enumerate(trainings(parts, scale, only, seeds)):
        names = tuple(name for name in scale.ood_sets(training.id).values() if name != without)
        made.results[training] = result(number, names)
    return made


@pytest.fixture(scope="module")
def one() -> Reproduction:
    return outcome(NAMES)


@pytest.fixture(scope="module")
def three() -> Reproduction:
    return outcome(["table1"], seeds=(0, 1, 2))


def pick(found: list[ComparedNumber], **keys: object) -> ComparedNumber:
    (entry,) = [e for e in found if all(getattr(e, key) == value for key, value in keys.items())]
    return entry


def test_every_number_of_the_paper_stands_in_its_place(one: Reproduction) -> None:
    for part in ("table1", "table2", "table3", "table4", "table6"):
        found = entries(part, one)
        methods = {row.label: row.paper for row in PARTS[part].rows}
        printed = numbers.cells(int(part[-1]))
        here = [cell for cell in printed if cell.id in ONLY.ids and cell.net in ONLY.nets]
        assert len([e for e in found if e.paper is not None]) == len(here)
        for cell in here:
            entry = next(
                e
                for e in found
                if (e.id, e.net, e.section, methods[e.row], e.metric)
                == (cell.id, cell.net, cell.ood or "", cell.method, cell.metric)
            )
            assert (entry.paper, entry.paper_error) == (cell.mean, cell.error)
            assert bool(entry.doubt) == (cell.likely is not None)


def test_figures_4_and_5_stand_beside_the_papers(one: Reproduction) -> None:
    curve = next(c for c in numbers.margin_curves() if (c.id, c.net, c.metric) == ("svhn", "allconv", "aupr"))
    entry = pick(entries("figure4", one), id="svhn", net="allconv", metric="aupr", row="m = 0.7")
    assert entry.paper == curve.values[7] and entry.margin == 0.7
    bar = next(b for b in numbers.bars() if (b.id, b.metric, b.bounded) == ("cifar10", "fpr95", False))
    assert pick(entries("figure5", one), id="cifar10", metric="fpr95", row="+MCD, without margin").paper == bar.value


def test_ours_is_the_mean_of_the_draws_in_percent(one: Reproduction) -> None:
    test = one.results[PaperTraining("cifar10", "wrn-40-2", "divoe")].test
    entry = pick(entries("table1", one), id="cifar10", row="DivOE", metric="aupr")
    draws = [mean(s.draws[trial].aupr for s in test.sets) for trial in range(10)]
    assert entry.ours == pytest.approx(100 * mean(draws))
    assert entry.draws_error == pytest.approx(100 * stdev(draws) / 10**0.5)
    assert entry.full == pytest.approx(100 * mean(s.full.aupr for s in test.sets))
    assert entry.difference is None  # DivOE is not as in the released code
    oe = pick(entries("table1", one), id="cifar10", row="OE", metric="aupr")
    assert oe.difference == pytest.approx(oe.ours - oe.paper)
    assert entry.seeds_deviation is None
    accuracy = pick(entries("table1", one), id="cifar10", row="DivOE", metric="accuracy")
    assert accuracy.full == pytest.approx(100 * test.accuracy)
    one_set = pick(entries("table3", one), id="cifar10", net="wrn-40-2", section="isun", row="DivOE", metric="fpr95")
    (isun,) = [s for s in test.sets if s.name == "isun"]
    assert one_set.ours == pytest.approx(100 * mean(draw.fpr95 for draw in isun.draws))


def test_seeds_and_draws_are_reported_apart(three: Reproduction) -> None:
    entry = pick(entries("table1", three), id="cifar10", row="OE", metric="fpr95")
    each = [
        [mean(s.draws[trial].fpr95 for s in test.sets) for trial in range(10)]
        for test in (three.results[PaperTraining("cifar10", "wrn-40-2", "oe", seed=seed)].test for seed in (0, 1, 2))
    ]
    assert entry.seeds == 3
    assert entry.ours == pytest.approx(100 * mean(map(mean, each)))
    assert entry.draws_error == pytest.approx(100 * mean(stdev(draws) / 10**0.5 for draws in each))
    assert entry.seeds_deviation == pytest.approx(100 * stdev(map(mean, each)))
    assert "FPR95 ↓ seeds ±" in tables_of(entries("table1", three))[0].header


def test_macs_rows_have_the_margins_that_their_choices_make(one: Reproduction) -> None:
    found = entries("table1", one)
    tried = {m: one.results[PaperTraining("cifar10", "wrn-40-2", "macs", m)] for m in FULL.margins}
    by_validation = min(tried, key=lambda m: (tried[m].validation.mean("fpr95"), -tried[m].validation.mean("auroc"), m))
    by_test = min(tried, key=lambda m: (tried[m].test.mean("fpr95"), -tried[m].test.mean("auroc"), m))
    for row, margin in (
        ("MaCS, m = 0.5", 0.5),
        ("MaCS, validation-chosen", by_validation),
        ("MaCS*, test-chosen", by_test),
    ):
        entry = pick(found, id="cifar10", row=row, metric="auroc")
        assert entry.margin == margin
        assert entry.full == pytest.approx(100 * tried[margin].test.mean("auroc"))
    assert pick(found, id="cifar10", row="MaCS, validation-chosen", metric="auroc").paper is None
    margins = entries("table5", one)
    assert pick(margins, id="cifar10", net="wrn-40-2", metric="test-chosen").ours == by_test
    assert pick(margins, id="cifar10", net="wrn-40-2", metric="test-chosen").paper == 0.5
    chosen = pick(margins, id="cifar10", net="wrn-40-2", metric="validation-chosen")
    assert (chosen.ours, chosen.paper) == (by_validation, None)


def test_no_difference_where_an_average_lacks_a_set() -> None:
    lacking = outcome(["table3"], without="isun")
    entry = pick(entries("table1", lacking), id="cifar10", row="OE", metric="auroc")
    assert entry.paper is not None and entry.ours is not None and entry.difference is None
    assert pick(entries("table1", lacking), id="cifar10", row="OE", metric="accuracy").difference is not None
    keys = {"id": "cifar10", "net": "wrn-40-2", "row": "OE", "metric": "auroc"}
    assert pick(entries("table3", lacking), section="isun", **keys).lacking == "missing"
    assert pick(entries("table3", lacking), section="svhn", **keys).difference is not None


def test_no_difference_where_the_budget_or_the_outliers_are_not_the_papers() -> None:
    short = replace(FULL, finetuning=replace(FULL.finetuning, epochs=1))
    in_float32 = replace(FULL, finetuning=replace(FULL.finetuning, precision="float32"))
    keys = {"id": "cifar10", "net": "wrn-40-2", "row": "OE", "metric": "auroc", "section": ""}
    for scale, outliers, given in (
        (FULL, None, True),
        (FULL, "300k", True),
        (in_float32, None, True),
        (short, None, False),
        (FULL, "tiny-imagenet", False),
    ):
        made = outcome(["table1"], scale)
        made.setup = replace(made.setup, outliers=outliers)
        assert (pick(entries("table1", made), **keys).difference is not None) == given


def test_imagenet32_is_compared_only_with_the_released_epochs(tmp_path: Path) -> None:
    only = Only(("imagenet32",), ("wrn-40-2",))
    for scale in (FULL, replace(FULL, released=True)):
        made = outcome(["table2"], scale, only=only)
        entry = pick(entries("table2", made), id="imagenet32", row="OE", metric="auroc")
        assert entry.paper is not None and (entry.difference is not None) == scale.released
        page = publish_parts(["table2"], replace(made, setup=replace(made.setup, out=tmp_path)))[0]
        assert any("no option follows" in note for note in page.notes) == scale.released


def test_the_released_loop_is_compared_with_figure_4() -> None:
    for scale in (FULL, replace(FULL, released=True)):
        found = entries("figure4", outcome(["figure4"], scale))
        assert {entry.paper is not None for entry in found} == {True}
        assert {entry.difference is not None for entry in found} == {scale.released}


def test_a_rehearsal_shows_what_was_run_and_nothing_of_the_paper() -> None:
    found = entries("table1", outcome(["table1"], SMOKE))
    assert {e.id for e in found} == {"digits"}
    assert all(e.paper is None and e.difference is None for e in found)
    assert all("for cifar10 on wrn-40-2" in e.block for e in found)


def test_a_failed_training_takes_only_its_own_numbers(one: Reproduction) -> None:
    broken = replace(one, results=dict(one.results), failures={})
    lost = PaperTraining("cifar10", "wrn-40-2", "macs", 0.3)
    del broken.results[lost]
    broken.failures[lost] = "the loss is not finite"
    found = [e for e in entries("table1", broken) if e.id == "cifar10"]
    assert {e.row for e in found if e.lacking} == {"MaCS, validation-chosen", "MaCS*, test-chosen"}
    assert {e.why for e in found if e.lacking} == {f"{lost.name} failed: the loss is not finite"}
    assert "failed" in publication_of("table1", "t", found, []).markdown()


def test_ranks_by_hand() -> None:
    assert ranks([98.123, 99.5, 98.121, None, 97.0], "auroc") == ["second", "best", "second", "", ""]
    assert ranks([3.0, 1.0, 2.0], "fpr95") == ["", "best", "second"]
    assert ranks([1.0, 1.0], "fpr95") == ["best", "best"]
    assert ranks([0.5, 0.8], "test-chosen") == ["", ""]
    assert ranks([], "auroc") == []


def test_test_chosen_numbers_win_no_prize(one: Reproduction) -> None:
    for block in tables_of(entries("table1", one)):
        (rows,) = block.sections.values()
        ours = [place for place, name in enumerate(block.header) if name.endswith("ours")]
        (star,) = [row for row in rows if row[0][0].startswith("MaCS*")]
        assert all(star[place][1] == "" for place in ours)
        for place in ours:
            assert "best" in {row[place][1] for row in rows}


def test_paper_ours_and_difference_have_columns_of_their_own(one: Reproduction) -> None:
    block = tables_of(entries("table1", one))[0]
    assert block.title == "cifar10 on wrn-40-2"
    assert block.header[:4] == ("", "AUROC ↑ paper", "AUROC ↑ ours", "AUROC ↑ diff.")
    assert len(block.header) == 1 + 4 * 3
    oe = block.sections[""][0]
    assert oe[0][0] == "OE" and oe[1][0] == "98.65 ± 0.03"


def test_doubtful_prints_are_marked(one: Reproduction, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (page,) = publish_parts(["table2"], one)
    text = page.files[0].read_text()
    assert "98.93 ± 0.00?" in text and "The mean of Table 4 is 99.93" in text


def test_markdown_has_a_cell_for_every_column(one: Reproduction) -> None:
    text = publication_of("table3", "Title", entries("table3", one), ["A note."]).markdown()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 * (2 + 5 * (1 + 7))  # two networks, five sets, a line for the set and one for each method
    for line in rows:
        assert line.count("|") == 1 + 1 + 9
    assert "**" in text and "<u>" in text and text.rstrip().endswith("- A note.")


def test_latex_is_balanced_and_escaped(one: Reproduction) -> None:
    text = publication_of("table1", "100% of it", entries("table1", one), ["a & b"]).latex()
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    body = [line for line in text.splitlines() if " & " in line and not line.startswith("%")]
    assert {line.count(" & ") for line in body} == {12}
    assert text.count("{") == text.count("}") and "±" not in text.split("\n\n", 1)[1]
    assert tex("50% of a_b & c ↑") == r"50\% of a\_b \& c $\uparrow$"


def test_csv_gives_back_every_number(one: Reproduction) -> None:
    found = entries("table3", one)
    rows = list(csv.DictReader(io.StringIO(publication_of("table3", "", found, []).comma_separated())))
    assert len(rows) == len(found)
    for row, entry in zip(rows, found, strict=True):
        assert float(row["ours"]) == entry.ours and row["section"] == entry.section
        assert float(row["difference"]) == entry.difference if entry.difference is not None else row["difference"] == ""


def test_the_terminal_shows_two_metrics_side_by_side(one: Reproduction) -> None:
    text = plain_text(publication_of("table1", "Table 1", entries("table1", one), ["A note."]))
    assert text.count("cifar10 on wrn-40-2") == 2 and "A note." in text
    assert "98.65 ± 0.03" in text


def test_publishing_writes_every_format(one: Reproduction, tmp_path: Path) -> None:
    pages = publish_parts(["table1", "table5", "figure5"], replace(one, setup=replace(one.setup, out=tmp_path)))
    assert {file.name for page in pages for file in page.files} == {
        *(f"{part}.{kind}" for part in ("table1", "table5", "figure5") for kind in ("md", "tex", "csv", "json")),
        *(f"figure5.{kind}" for kind in ("svg", "pdf", "png")),
    }
    assert all(file.stat().st_size for page in pages for file in page.files)
    assert "test-chosen" in " ".join(pages[0].notes) and "OOD as positive" in " ".join(pages[0].notes)
    assert pages[0].as_dict()["entries"][0]["difference"] == entries("table1", one)[0].difference


def test_the_page_on_the_paper_names_every_doubtful_cell() -> None:
    page = (ROOT / "docs/paper-departures.md").read_text()
    lines = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    told = sorted((line[1].strip(), line[3].strip(), line[4].strip()) for line in lines if len(line) == 7)
    expected = [(str(cell.table), f"{cell.mean:g}", f"{cell.likely:g}") for cell in numbers.doubtful()]
    assert sorted(expected) == [row for row in told if row[0].isdecimal()]
