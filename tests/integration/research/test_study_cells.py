"""Cells of the study at toy scale: measured by every score, found again, recomputed with the same numbers."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from command import refused, run
from macs import nets, training
from macs.core.errors import MacsError
from macs.core.files import claimed
from macs.data.spec import fingerprint
from macs.evaluation import evaluate
from macs.experiments.cells import Examination
from macs.metrics import ood_metrics
from macs.research import study_plan as plan
from macs.research import study_tables
from macs.research.study import Study, StudyResults, checkpoints, grouped
from macs.research.study import run as run_study
from macs.research.study_cells import METRICS, CellRecord, StudySets, cell_for, compute, confidences_in, records_in
from macs.research.study_plan import BASE, KEPT, NET, OOD, SCORES, SECOND_NET, Row, Trial
from macs.research.study_tables import publish_study
from macs.training.sources import Held
from macs.training.spec import ALWAYS
from repository import ROOT
from tiny import noise, stripes

SMALL = replace(BASE, epoch_size=64)
OE = Trial("oe", SMALL)


@pytest.fixture(scope="module")
def sets() -> StudySets:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nets.build("wrn-10-1", classes=3, dropout=0.0)
    ood = {name: noise(60 + number, seed=10 + number) for number, name in enumerate(OOD)}
    on = Examination(stripes(60, seed=5), noise(60, seed=6), stripes(80, seed=7), ood)
    return StudySets(net, stripes(200, seed=1), noise(100, seed=2), on)


@pytest.fixture(scope="module")
def computed(sets: StudySets, tmp_path_factory: pytest.TempPathFactory) -> tuple[CellRecord, Path]:
    folder = tmp_path_factory.mktemp("cells")
    return compute(cell_for(OE, folder / "runs", sets), OE, sets, folder), folder


def test_a_cell_holds_every_score_on_every_set(computed: tuple[CellRecord, Path]) -> None:
    record, folder = computed
    assert records_in(folder) == [record]
    assert set(record.scores) == set(SCORES)
    for of in record.scores.values():
        assert set(of) == {"validation", *OOD} and all(len(values) == len(METRICS) for values in of.values())
    for of in record.unknowns.values():
        assert set(of) == {"shuffled", "inverted", "noise", "photographs"}
    assert record.stored["msp"] == 0 < record.stored["react"] < record.stored["vim"] < record.stored["energy+knn"]
    assert record.cost["images"] == 64 + 64 + 8  # eight images try whether the network fits before the training
    assert record.made_with["torch"] == torch.__version__


@pytest.mark.parametrize("score", KEPT)
def test_the_stored_confidences_give_the_stored_metrics(score: str, computed: tuple[CellRecord, Path]) -> None:
    record, folder = computed
    stored = confidences_in(folder, record.key)
    for name in OOD:
        found = ood_metrics(stored[f"id/{score}"], stored[f"{name}/{score}"])
        assert found.auroc == pytest.approx(record.value("auroc", score, name), abs=0.005)  # of half precision


def test_a_deleted_cell_is_recomputed_with_the_same_numbers(
    computed: tuple[CellRecord, Path], sets: StudySets, tmp_path: Path
) -> None:
    record, folder = computed
    again = compute(cell_for(OE, tmp_path / "runs", sets), OE, sets, tmp_path)
    assert again.key == record.key
    assert (again.scores, again.accuracy) == (record.scores, record.accuracy)
    for name, values in confidences_in(tmp_path, again.key).items():
        assert np.array_equal(values, confidences_in(folder, record.key)[name])


def test_a_training_that_was_interrupted_before_its_cell_was_written_is_done_again_and_its_cost_is_whole(
    computed: tuple[CellRecord, Path], sets: StudySets, tmp_path: Path
) -> None:
    cell = cell_for(OE, tmp_path / "runs", sets)
    cell.run(None, Held.of([sets.train, sets.outliers], [sets.net]), progress=False)
    assert cell.finished
    assert compute(cell, OE, sets, tmp_path).cost["images"] == computed[0].cost["images"]


def test_averages_share_a_training_and_are_what_a_training_with_a_start_share_gives(
    sets: StudySets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(SMALL, start_share=0.5)
    half, most = (Trial("oe", replace(recipe, start_share=share), larger=True) for share in (0.5, 0.7))
    record = compute(cell_for(half, tmp_path / "runs", sets), half, sets, tmp_path)
    assert set(record.unknowns["msp"]) >= {"noise", "cut", "mixed", "exchanged"} and "fdbd" in record.scores
    monkeypatch.setattr(training, "run", None)  # from here on, nothing can be trained
    other = compute(cell_for(most, tmp_path / "runs", sets), most, sets, tmp_path)
    assert (other.cost, other.key != record.key, other.scores != record.scores) == (record.cost, True, True)
    monkeypatch.undo()
    net = copy.deepcopy(sets.net)
    training.finetune(net, sets.train, sets.outliers, method="oe", recipe=recipe, progress=False)
    by_hand = evaluate(net, sets.examination.test, sets.examination.ood, precision="float32", progress=False)
    assert record.mean("auroc", "msp") == pytest.approx(by_hand.mean("auroc"), abs=1e-5)


def test_outliers_are_grouped_by_a_file_for_just_these_images(sets: StudySets, tmp_path: Path) -> None:
    groups = np.arange(len(sets.outliers), dtype=np.uint8) % 20
    np.savez(tmp_path / "groups.npz", groups=groups, fingerprint=np.array(fingerprint(sets.outliers)))
    assert np.array_equal(grouped(sets.outliers, tmp_path / "groups.npz"), groups)
    with pytest.raises(MacsError, match="groups other images"):
        grouped(sets.train, tmp_path / "groups.npz")


def test_a_cell_that_another_process_computes_is_left_to_it(sets: StudySets, tmp_path: Path) -> None:
    rows = (Row("plain", "plain", ""), Row("oe", "OE", "oe", once=True, recipe={"epoch_size": 64}))
    trial = rows[1].candidates()[0]
    lock = tmp_path / "runs" / f".{cell_for(trial, tmp_path / 'runs', sets).key}.lock"
    with claimed(lock) as ours:
        assert ours
        made = run_study(Study.read(tmp_path, rows), {NET: sets}, tmp_path, tmp_path / "runs")
        assert [record.trial["method"] for record in made] == [""]
    (last,) = run_study(Study.read(tmp_path, rows), {NET: sets}, tmp_path, tmp_path / "runs")
    assert last.trial["method"] == "oe"


def test_the_cells_of_the_repository_are_named_by_all_that_a_training_depends_on() -> None:
    """A field that an identity lost would make every stored cell one of other images."""
    for record in records_in(ROOT / "study"):
        assert set(ALWAYS) <= set(record.depends)


def test_a_network_is_carried_over_from_margin_to_margin(sets: StudySets, tmp_path: Path) -> None:
    trial = Trial("macs", replace(SMALL, options={"margin": 0.5}), carried=(0.2, 0.8))
    record = compute(cell_for(trial, tmp_path / "runs", sets), trial, sets, tmp_path)
    assert record.cost["images"] == 3 * (64 + 64 + 8) and record.trial["carried"] == [0.2, 0.8]
    assert cell_for(replace(trial, carried=()), tmp_path, sets).key != record.key
    net = copy.deepcopy(sets.net)
    for seed, margin in ((1, 0.2), (2, 0.8), (0, 0.5)):
        recipe = replace(SMALL, options={"margin": margin}, seed=seed)
        training.finetune(net, sets.train, sets.outliers, method="macs", recipe=recipe, progress=False)
    by_hand = evaluate(net, sets.examination.test, sets.examination.ood, precision="float32", progress=False)
    assert record.accuracy == pytest.approx(by_hand.accuracy)
    assert record.mean("auroc", "msp") == pytest.approx(by_hand.mean("auroc"), abs=1e-5)


def test_other_settings_outliers_or_loss_are_other_cells(sets: StudySets, tmp_path: Path) -> None:
    trials = [OE, Trial("oe", replace(SMALL, seed=1)), Trial("oe", SMALL, outliers=50), Trial("msp", SMALL)]
    keys = {cell_for(trial, tmp_path, sets).key for trial in trials}
    cell = cell_for(OE, tmp_path, sets)
    assert len(keys | {replace(cell, code="changed").key}) == 5
    assert cell_for(OE, tmp_path / "elsewhere", sets).key == cell.key


def test_a_cell_that_was_edited_or_damaged_is_refused(computed: tuple[CellRecord, Path], tmp_path: Path) -> None:
    record, folder = computed
    file = tmp_path / f"{record.key}.json"
    values = json.loads((folder / file.name).read_text())
    values["depends"]["lr"] = 1.0
    file.write_text(json.dumps(values))
    with pytest.raises(MacsError, match="does not hold the cell"):
        records_in(tmp_path)
    file.write_text("{")
    with pytest.raises(MacsError, match="is not a cell"):
        records_in(tmp_path)
    with pytest.raises(MacsError, match="Cannot read"):
        confidences_in(tmp_path, record.key)
    large = {"id/msp": np.zeros(2**25 + 1, np.float16)}
    np.savez_compressed(tmp_path / f"{record.key}.npz", allow_pickle=False, **large)
    with pytest.raises(MacsError, match="Cannot read"):
        confidences_in(tmp_path, record.key)


def test_running_computes_what_is_missing_and_nothing_twice(
    sets: StudySets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "BASE", SMALL)
    monkeypatch.setattr(plan, "SEEDS", (0, 1))
    rows = (Row("plain", "plain", ""), Row("oe", "OE", "oe", learning_rates=(0.005,)))
    study = Study.read(tmp_path, rows)
    assert len(study.missing()) == 3
    made = run_study(study, {NET: sets}, tmp_path, tmp_path / "runs", limit=2)
    assert [record.trial["method"] for record in made] == ["", "oe"]
    (last,) = run_study(Study.read(tmp_path, rows), {NET: sets}, tmp_path, tmp_path / "runs")
    assert last.trial["recipe"]["seed"] == 1
    finished = Study.read(tmp_path, rows)
    assert run_study(finished, {NET: sets}, tmp_path, tmp_path / "runs") == [] and finished.missing() == []
    others = replace(sets, train=stripes(200, seed=99))
    with pytest.raises(MacsError, match=r"not a cell of these images \(other training images\)"):
        run_study(finished, {NET: others}, tmp_path, tmp_path / "runs")
    findings = StudyResults.of(finished)
    assert list(findings.rows["oe"].records) == [0, 1] and list(findings.rows["plain"].records) == [0]
    assert findings.missing == 0


def test_a_second_network_has_cells_of_its_own_once_its_classifier_is_there(
    sets: StudySets, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tuple(Row(f"plain-{net}", "plain", "", net=net, once=True) for net in (NET, SECOND_NET))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        other = replace(sets, net=nets.build("wrn-10-1", classes=3, dropout=0.0))
    (first,) = run_study(Study.read(tmp_path, rows), {NET: sets}, tmp_path, tmp_path / "runs")
    assert f"cifar10-{SECOND_NET}.pt" in capsys.readouterr().err
    (second,) = run_study(Study.read(tmp_path, rows), {NET: sets, SECOND_NET: other}, tmp_path, tmp_path / "runs")
    assert "left out" not in capsys.readouterr().err
    assert "net" not in first.trial and second.trial["net"] == SECOND_NET
    assert first.scores != second.scores and first.key != second.key
    assert Study.read(tmp_path, rows).missing() == []


def test_classifiers_are_one_file_or_a_folder_with_one_per_network(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match=r"no file called cifar10-wrn-40-2\.pt"):
        checkpoints(tmp_path)
    files = {net: tmp_path / f"cifar10-{net}.pt" for net in (NET, SECOND_NET)}
    for file in files.values():
        file.touch()
    assert checkpoints(tmp_path) == files
    assert checkpoints(files[NET]) == {NET: files[NET]}


@pytest.mark.docs
def test_the_command_writes_the_study_from_the_cells_of_the_repository(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("reproduce", "study", "--out", tmp_path / "out", "--json")
    value = json.loads(capsys.readouterr().out)
    assert {Path(file).name for file in value["files"]} >= {"study.md", "study.json", "scores.svg"}
    assert json.loads((tmp_path / "out" / "study.json").read_text())["rows"] == value["rows"]
    told = (tmp_path / "out" / "study.md").read_text()
    assert "ID lost at 95% of OOD caught (FPR95)" in told and "OOD passed at 95% of ID kept (FPR95-ID)" in told


def test_an_installed_package_keeps_its_cells_beside_the_tables(
    sets: StudySets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_tables, "CELLS", tmp_path / "lib" / "study")
    monkeypatch.setattr(study_tables, "sets_from", lambda *_: {NET: sets})
    monkeypatch.setattr(
        study_tables,
        "run",
        lambda study, sets, cells, runs: compute(cell_for(OE, runs, sets[NET]), OE, sets[NET], cells),
    )
    publish_study(tmp_path / "out", checkpoint=tmp_path / "classifier.pt")
    assert len(list((tmp_path / "out" / "cells").glob("*.json"))) == 1 and not (tmp_path / "lib").exists()


def test_mistakes_get_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "alone" in refused(capsys, "reproduce", "study", "table1")
    assert "--checkpoint" in refused(capsys, "reproduce", "study", "--data", tmp_path)
    assert "no checkpoint" in refused(capsys, "reproduce", "study", "--checkpoint", tmp_path / "none.pt")
    assert "There are no cells" in refused(capsys, "reproduce", "study", "--cells", tmp_path, "--out", tmp_path / "out")
    with pytest.raises(MacsError, match="no cells"):
        publish_study(tmp_path / "out", tmp_path)
