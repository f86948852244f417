"""From made-up cells to findings, tables and figures; and the documents hold what the cells of the repository say."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from macs.core.errors import MacsError
from macs.figures import save
from macs.research.study import Study, StudyResults
from macs.research.study_cells import METRICS, CellRecord, loss_code, records_in
from macs.research.study_plan import (
    BASE,
    COSTS,
    ELSEWHERE,
    EQUAL,
    KEPT,
    LONGER,
    NET,
    OOD,
    ROWS,
    SCORES,
    Row,
    Trial,
    repeated,
)
from macs.research.study_rule import by_kind, ranks_of
from macs.research.study_tables import MARKERS, as_dict, blocks, draw, refreshed
from macs.training.recipe import AUTO_RECIPE, resolved
from repository import ROOT

REPOSITORY = ROOT / "study"
PLAIN = Row("plain", "Plain", "")
OE = Row("oe", "OE", "oe")
HINGE = Row("hinge", "Hinge", "macs", {"variant": "hinge", "margin": 0.5}, ours=True)


def made_up(trial: Trial, fpr95: float, validation: float, accuracy: float = 0.9) -> CellRecord:
    """A cell whose FPR95 is `fpr95` on the first set and 0.01 more on each next one; other scores are worse. On images
    that macs makes, it is as on validation outliers."""

    def results(score: str) -> dict[str, list[float]]:
        worse = 0.0 if score == "msp" else 0.1
        sets = {name: fpr95 + worse + 0.01 * number for number, name in enumerate(OOD)}
        return {name: [0.9, 0.8, value, 0.7, 0.6] for name, value in {"validation": validation + worse, **sets}.items()}

    return CellRecord(
        key=f"{trial.method}-{trial.recipe.lr}-{trial.seed}",
        trial=trial.as_dict(),
        code=loss_code(trial.method),
        depends={},
        accuracy=accuracy,
        validation_accuracy=accuracy,
        scores={score: results(score) for score in SCORES},
        cost={"seconds": 2.0, "cpu_seconds": 3.0, "images": 4000},
        made_with={},
        unknowns={score: {"noise": results(score)["validation"]} for score in SCORES},
        stored=dict.fromkeys(SCORES, 0),
    )


def seeded(trial: Trial, seed: int) -> Trial:
    return replace(trial, recipe=replace(trial.recipe, seed=seed))


@pytest.fixture
def study() -> Study:
    """OE is chosen at its second rate, the hinge at its first. Both have three seeds."""
    oe_first, oe_second, oe_third = OE.candidates()
    hinge, hinge_second, _ = HINGE.candidates()
    records = [
        made_up(oe_first, fpr95=0.10, validation=0.40),  # best on test images, which must not matter
        made_up(oe_second, fpr95=0.30, validation=0.30),
        made_up(oe_third, fpr95=0.30, validation=0.31),
        made_up(seeded(oe_second, 1), fpr95=0.34, validation=0.30),
        made_up(seeded(oe_second, 2), fpr95=0.32, validation=0.30),
        made_up(hinge, fpr95=0.20, validation=0.20, accuracy=0.91),
        made_up(hinge_second, fpr95=0.19, validation=0.25, accuracy=0.95),
        made_up(seeded(hinge, 1), fpr95=0.23, validation=0.20, accuracy=0.91),
        made_up(seeded(hinge, 2), fpr95=0.215, validation=0.20, accuracy=0.91),
        made_up(PLAIN.candidates()[0], fpr95=0.5, validation=0.5),
    ]
    return Study((OE, HINGE, PLAIN), records)


def test_settings_are_chosen_on_validation_and_not_on_test(study: Study) -> None:
    assert study.chosen(OE) == OE.candidates()[1]
    part = [each for each in study.records if each.key != "oe-0.001-0"]
    assert Study(study.rows, part).chosen(OE) == OE.candidates()[0]  # until all of its candidates are computed
    assert Study(study.rows, part[1:]).chosen(OE) is None
    assert StudyResults.of(study).rows["oe"].best_score == "msp"


def test_a_lower_rate_is_tried_as_long_as_the_last_one_was_better(study: Study) -> None:
    assert study.candidates(OE) == OE.candidates()
    first, second = OE.candidates()[:2]
    worse = [made_up(first, fpr95=0.3, validation=0.3), made_up(second, fpr95=0.2, validation=0.31)]
    assert Study((OE,), worse).candidates(OE) == [first, second]
    chosen = replace(HINGE, others=({"margin": 0.2},))
    assert Study((chosen,), []).candidates(chosen) == [*chosen.rates()[:2], chosen.candidates()[-1]]
    order = study.trials()
    assert [next(order) for _ in range(5)] == repeated(HINGE.candidates()[0], range(5))  # recommended so far
    firsts = [first, HINGE.candidates()[0], PLAIN.candidates()[0]]
    assert [next(order) for _ in range(6)] == [*firsts, *OE.candidates()[1:], HINGE.rates()[1]]


def test_a_row_that_has_nothing_of_its_own_yet_is_not_shown(study: Study) -> None:
    chosen = replace(HINGE, name="chosen", others=({"margin": 0.2},))
    assert list(StudyResults.of(Study((*study.rows, chosen), study.records)).rows) == ["oe", "hinge", "plain"]
    more = [made_up(trial, fpr95=0.2, validation=0.25) for trial in chosen.candidates()[1:]]
    assert list(StudyResults.of(Study((*study.rows, chosen), study.records + more)).rows) == [
        "oe",
        "hinge",
        "plain",
        "chosen",
    ]


def test_numbers_by_hand(study: Study) -> None:
    findings = StudyResults.of(study)
    oe, hinge = findings.rows["oe"], findings.rows["hinge"]
    assert oe.estimate("fpr95", "msp").mean == pytest.approx(0.32 + 0.015)  # 0.00, 0.01, 0.02, 0.03 over the sets
    assert oe.estimate("fpr95", "msp").error == pytest.approx(0.02 / 3**0.5)
    gap = findings.difference("hinge", "fpr95", "msp", "msp")
    assert gap.pairs == 3 and gap.mean == pytest.approx((-0.10 - 0.11 - 0.105) / 3)
    assert gap.half_width == pytest.approx(4.30265 * 0.005 / 3**0.5, rel=1e-4)  # t(0.975, 2) and their deviation
    assert hinge.estimate("fpr95", "msp", "svhn").mean == pytest.approx(0.215)
    assert findings.recommended() == (hinge, "msp")
    assert findings.missing == 2  # two more seeds of the recommended method


def test_the_score_is_that_of_auto_where_cells_have_its_unknown_images(study: Study) -> None:
    """vim is best on all kinds but the validation outliers, and nothing is near: energy+vim stores more."""
    passed = {"vim": 0.2, "energy+vim": 0.2, "knn": 0.1}
    unknowns = {
        score: {kind: [0.9, 0.8, 0.5, 0.7, passed.get(score, 0.6)] for kind in ("noise", "shuffled", "inverted")}
        for score in SCORES
    }
    for kind in ("noise", "shuffled"):
        unknowns["vim"][kind] = [0.9, 0.8, 0.5, 0.7, 0.0]
    stored = {score: 10 + 90 * ("+" in score) for score in SCORES}
    whole = [replace(each, unknowns=unknowns, stored=stored) for each in study.records]
    findings = StudyResults.of(Study(study.rows, whole))
    hinge = findings.rows["hinge"]
    assert (hinge.best_score, hinge.auto_score) == ("msp", "vim")
    line = next(line for line in blocks(findings)["scores"].splitlines() if line.startswith("| Hinge"))
    assert line.count("←") == 1 and line.count("33.00 ⇐") == 1
    older = [replace(each, unknowns={}) for each in study.records]
    part = StudyResults.of(Study(study.rows, [*older[:-2], whole[-2], older[-1]]))
    assert (part.rows["hinge"].auto_score, part.rows["oe"].auto_score) == ("vim", None)  # one seed's cell is enough


def with_accuracy(study: Study, accuracy: float, start: str) -> Study:
    """The same study, where the cells whose key starts so have this validation accuracy."""
    changed = [
        replace(each, validation_accuracy=accuracy) if each.key.startswith(start) else each for each in study.records
    ]
    return Study(study.rows, changed)


@pytest.mark.parametrize(("accuracy", "row"), [(0.8901, HINGE), (0.8899, OE)])
def test_the_recommended_network_loses_at_most_one_point_of_the_classifiers_accuracy(
    accuracy: float, row: Row, study: Study
) -> None:
    assert with_accuracy(study, accuracy, "macs").recommended().row == row


def test_kinds_of_unknown_images_count_alike_and_training_and_score_are_chosen_together(study: Study) -> None:
    """The hinge is best on validation outliers by far, OE's second rate with knn slightly on the other two kinds."""
    kinds = {"noise": 0.19, "cut": 0.19}
    unknowns = {
        score: {kind: [0.9, 0.8, value if score == "knn" else 0.5, 0.7, 0.6] for kind, value in kinds.items()}
        for score in SCORES
    }
    others = {score: {kind: [0.9, 0.8, 0.2, 0.7, 0.6] for kind in kinds} for score in SCORES}
    cells = [replace(each, unknowns=unknowns if each.key == "oe-0.002-0" else others) for each in study.records]
    best = Study(study.rows, cells).recommended()
    assert (best.row, best.trial, best.score) == (OE, OE.candidates()[1], "knn")
    # Of 5 rated candidates with 16 scores each, first on two kinds, and behind both of the hinge's and OE's msp.
    outliers = sorted(
        (by_kind(each, score)["validation"][2], each.key)
        for each in cells[:3] + cells[5:7] + cells[-1:]
        for score in SCORES
    )
    place = [value for value, _ in outliers].index(0.4) + 1
    ties = [value for value, _ in outliers].count(0.4)
    assert best.rank == pytest.approx((1 + 1 + place + (ties - 1) / 2) / 3)


def test_ranks_follow_fpr95_then_auroc_and_are_shared() -> None:
    metrics = [[0.9, 0, 0.3, 0, 0], [0.8, 0, 0.3, 0, 0], [0.9, 0, 0.1, 0, 0], [0.8, 0, 0.3, 0, 0]]
    assert list(ranks_of(metrics)) == [2, 3.5, 1, 3.5]


def test_cells_without_made_images_cannot_be_recommended(study: Study) -> None:
    part = [replace(each, unknowns={}) if each.trial["method"] == "macs" else each for each in study.records]
    assert Study(study.rows, part).recommended().row == OE
    without_plain = Study(study.rows[:2], study.records[:-1])
    assert without_plain.recommended() is None and without_plain.repeats() == []
    assert "too few cells" in blocks(StudyResults.of(without_plain))["goal"]


def test_other_seeds_do_not_change_what_is_recommended(study: Study) -> None:
    worse = [
        replace(each, validation_accuracy=0.5) if each.trial["recipe"].get("seed") else each for each in study.records
    ]
    best = Study(study.rows, worse).recommended()
    assert best == study.recommended() and (best.row, best.trial) == (HINGE, HINGE.candidates()[0])


def test_any_candidate_may_be_recommended_and_is_then_a_row_of_its_own(study: Study) -> None:
    """The hinge's first rate is chosen for its row, but it costs accuracy; its second rate does not."""
    findings = StudyResults.of(with_accuracy(study, 0.5, "macs-0.005"))
    found, score = findings.recommended()
    assert findings.rows["hinge"].trial == HINGE.candidates()[0] and score == "msp"
    assert (found.row.title, found.trial) == ("recommended: Hinge", HINGE.candidates()[1])
    assert list(found.records) == [0] and findings.missing == 4  # seeds 1 to 4
    assert "| recommended: Hinge | 1 | msp |" in blocks(findings)["core"]


def test_a_cell_of_another_loss_does_not_count(study: Study) -> None:
    old = [replace(each, code="old") if each.trial["method"] == "macs" else each for each in study.records]
    assert list(StudyResults.of(Study(study.rows, old)).rows) == ["oe", "plain"]


def test_tables_show_the_numbers_and_bold_only_what_is_significant(study: Study) -> None:
    tables = blocks(StudyResults.of(study))
    line = next(line for line in tables["core"].splitlines() if line.startswith("| Hinge"))
    assert "**23.00 ± 0.87**" in line and "-10.50 [-11.74, -9.26]" in line and "91.00" in line
    assert "**" not in next(line for line in tables["core"].splitlines() if line.startswith("| OE"))
    noisy = [
        replace(each, scores=study.records[1].scores) if each.key == "macs-0.005-1" else each for each in study.records
    ]
    assert "**" not in blocks(StudyResults.of(Study(study.rows, noisy)))["core"]
    assert "| OE | 3 of 3 | 0.002 | its defaults | 30.00 ± 0.00 |" in tables["chosen"]
    assert "the ratio is 0.69" in tables["goal"] and "is met" in tables["goal"]  # 0.23 / 0.335
    assert as_dict(StudyResults.of(study))["rows"]["hinge"]["seeds"] == [0, 1, 2]
    assert [line.split(" | ")[0] for line in tables["summary"].splitlines()[2:]] == ["| Plain", "| OE", "| Hinge"]


def test_the_main_rows_at_one_rate_have_a_table_of_their_own(study: Study) -> None:
    ours, theirs = EQUAL[1], EQUAL[0]
    cells = [made_up(each, fpr95=0.30, validation=0.4) for each in repeated(theirs.candidates()[0], (0, 1, 2))]
    cells += [made_up(each, fpr95=0.28, validation=0.4) for each in repeated(ours.candidates()[0], (0, 1, 2))]
    findings = StudyResults.of(Study((*study.rows, theirs, ours), [*cells, *study.records[1:]]))
    assert findings.best == "hinge" and list(findings.rows) == [
        "oe",
        "hinge",
        "plain",
    ]  # a table apart is not chosen from
    assert blocks(findings)["equal"].splitlines()[2:] == [
        "| OE | 3 | msp | 90.00 ± 0.00 | 31.50 ± 0.00 | – | 90.00 ± 0.00 |",
        "| MaCS, margin 0.5 | 3 | msp | 90.00 ± 0.00 | **29.50 ± 0.00** | -2.00 [-2.00, -2.00] | 90.00 ± 0.00 |",
    ]


def test_another_network_has_a_table_of_its_own(study: Study) -> None:
    plain, oe, *_ = ELSEWHERE
    cells = [made_up(row.candidates()[0], fpr95=0.30, validation=0.1) for row in (plain, oe)]
    findings = StudyResults.of(Study((*study.rows, *ELSEWHERE), [*study.records, *cells]))
    assert blocks(findings)["elsewhere"].splitlines()[2:] == [
        "| plain classifier | msp | 30.00 | 31.00 | 32.00 | 33.00 | 31.50 | 90.00 | 90.00 |",
        "| OE | msp | 30.00 | 31.00 | 32.00 | 33.00 | 31.50 | 90.00 | 90.00 |",
    ]
    assert findings.best == "hinge" and list(findings.rows) == ["oe", "hinge", "plain"]  # nothing is chosen from it
    assert "| OE, allconv | 0: " in blocks(findings)["cells"]


def test_longer_trainings_are_compared_at_the_same_length(study: Study) -> None:
    names = ("oe-longer-2", "hinge-averaged-longer-2", "oe-longer-4")
    theirs, ours, alone = (next(row for row in LONGER if row.name == name) for name in names)
    cells = [
        made_up(trial, fpr95=fpr95, validation=0.1)
        for row, fpr95 in ((theirs, 0.30), (ours, 0.20), (alone, 0.25))
        for trial in repeated(row.candidates()[0], row.seeds())
    ]
    written = blocks(StudyResults.of(Study((*study.rows, *LONGER), [*study.records, *cells])))["longer-claims"]
    assert "21.50 over the four sets, 10.00 points below OE, two epochs with msp, 31.50" in written
    assert "significant over 3 seeds" in written and "four epochs" not in written


def test_seconds_are_compared_on_one_machine(study: Study) -> None:
    slow, fast = {"processor": "slow", "threads": 1}, {"processor": "fast", "threads": 1}

    def costs(seconds_there: dict[str, float]) -> list[str]:
        """All cells are made by the slow machine in 3 seconds, but those of the keys that are given."""
        records = [
            replace(each, made_with=fast, cost={**each.cost, "cpu_seconds": seconds_there[each.key]})
            if each.key in seconds_there
            else replace(each, made_with=slow)
            for each in study.records
        ]
        lines = blocks(StudyResults.of(Study(study.rows, records)))["core"].splitlines()
        return [line.split(" | ")[-1] for line in lines[2:4]]

    hinges = {"macs-0.005-0": 2.0, "macs-0.005-1": 2.0, "macs-0.005-2": 2.0}
    assert costs({}) == ["1.00 |", "1.00 |"]
    assert costs(hinges) == ["1.00 |", "– |"]
    assert costs({**hinges, "oe-0.005-0": 4.0}) == ["1.00 |", "0.50 |"]  # OE at a rate that was not chosen
    assert costs({**hinges, "oe-0.005-0": 4.0, "oe-0.002-1": 1.0}) == ["1.00 |", "2.00 |"]  # rather the one that was


def test_claims_name_their_cells(study: Study) -> None:
    named = Study((OE, replace(HINGE, name="macs")), study.records)
    (line,) = blocks(StudyResults.of(named))["claims"].splitlines()
    assert line.startswith(
        "- Hinge with msp has the FPR95 23.00 over the four sets, 10.50 points below OE with msp, 33.50"
    )
    assert "significant over 3 seeds; cells macs-0.005-0, macs-0.005-1, macs-0.005-2, oe-0.002-0" in line


def test_a_classifier_without_training_is_compared_with_every_seed(study: Study) -> None:
    plain = Row("plain", "Plain", "")
    both = Study((plain, OE), [made_up(plain.candidates()[0], fpr95=0.5, validation=0.5), *study.records])
    (line,) = (each for each in blocks(StudyResults.of(both))["claims"].splitlines() if each.startswith("- OE"))
    assert line.startswith("- OE with msp has the FPR95 33.50 over the four sets, 18.00 points below Plain with msp")
    assert "(significant over 3 seeds; cells " in line


def test_a_study_without_cells_says_so() -> None:
    assert blocks(StudyResults.of(Study((OE,), []))) == {"status": "There are no cells; 4 are planned."}


def test_figures_are_drawn_from_the_findings(study: Study, tmp_path: Path) -> None:
    budgets = [made_up(row.candidates()[0], fpr95=0.3, validation=0.3) for row in COSTS[:2]]
    drawn = draw(StudyResults.of(Study((*study.rows, *COSTS), study.records + budgets)))
    assert list(drawn) == ["differences", "scores", "near-and-far", "cost"]
    save(drawn["scores"], tmp_path / "scores")
    text = " ".join(ElementTree.parse(tmp_path / "scores.svg").getroot().itertext())
    assert "Hinge" in text and "23.0" in text and "33.5" in text


def test_a_document_is_refreshed_between_its_markers() -> None:
    text = "Before.\n<!-- study: core -->\nold\n<!-- end -->\nAfter."
    assert refreshed(text, {"core": "new"}) == "Before.\n<!-- study: core -->\n\nnew\n\n<!-- end -->\nAfter."
    with pytest.raises(MacsError, match="'core'"):
        refreshed(text, {"other": ""})


@pytest.mark.parametrize("document", ["README.md", "docs/index.md", "docs/study.md", "docs/study-tables.md"])
def test_the_documents_hold_what_the_cells_say(document: str) -> None:
    """After new cells: .venv/bin/python study/refresh.py"""
    text = (ROOT / document).read_text(encoding="utf-8")
    assert refreshed(text, blocks(StudyResults.of(Study.read(REPOSITORY)))) == text


def test_auto_is_what_the_cells_recommend() -> None:
    best = Study.read(REPOSITORY).recommended()
    assert resolved("auto", {}) == (best.row.method, best.trial.recipe.options)
    assert replace(best.trial.recipe, options={}) == replace(BASE, **AUTO_RECIPE)
    assert best.trial in [each.candidates()[0] for each in LONGER]  # it is trained longer, too


def test_another_network_is_trained_as_validation_chose_for_the_first() -> None:
    study = Study.read(REPOSITORY)
    for row in ELSEWHERE:
        first = next(each for each in ROWS if row.name.endswith(f"-{each.name}") and each.title == row.title)
        assert study.chosen(first) == replace(row.candidates()[0], net=NET)


@pytest.mark.parametrize("page", ["study.md", "study-tables.md"])
def test_no_result_stands_outside_the_generated_blocks(page: str) -> None:
    prose = MARKERS.sub("", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert re.findall(r"\d+\.\d\d\b(?!\d)", prose) == []


def test_the_cells_of_the_repository_are_small_and_complete() -> None:
    records = records_in(REPOSITORY)
    assert records and sum(file.stat().st_size for file in REPOSITORY.iterdir()) < 10e6
    for record in records:
        assert (REPOSITORY / f"{record.key}.npz").is_file()
        assert set(SCORES) <= set(record.scores) and set(KEPT) <= set(SCORES)
        assert all(len(values) == len(METRICS) for of in record.scores.values() for values in of.values())
        assert record.made_with["processor"] and record.trial["recipe"]["precision"] == "float32"
    assert len({row.name for row in ROWS}) == len(ROWS)
