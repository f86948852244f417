"""Running the grid: no training twice, none lost to another's failure, and every table from the kept confidences."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import macs
from command import needs_torch, refused, run
from macs import data, nets, training
from macs.core.errors import MacsError
from macs.research.paper_estimate import duration, plan
from macs.research.paper_grid import FULL, LAB, PARTS, SCALES, SMOKE, Only, PaperTraining
from macs.research.paper_publication import publish_parts
from macs.research.paper_runs import Reproduction, Setup, bench, reproduce
from macs.training.runs import RunFolder
from macs.training.spec import TrainingSpec

BUDGET: Any = {"epochs": 1, "epoch_size": 64, "batch_in": 32}
MICRO = replace(
    SMOKE,
    pretraining=replace(SMOKE.pretraining, **BUDGET),
    finetuning=replace(SMOKE.finetuning, **BUDGET, batch_out=32),
    nets=dict.fromkeys(SMOKE.nets, "wrn-10-1"),
    margins=(0.0, 0.9),
    limit=30,
)
ALL = list(PARTS)
ABLATIONS = 1 + 1 + 2  # the margin 0.1, the term without a margin with either sign, two hinges; less 0.9, a margin
TRAININGS = 1 + 4 + 2 + 1 + 1 + ABLATIONS  # pretraining, baselines, margins, the margin 0.5


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    """Cutting the patches of the digits benchmark takes longer than most tests here."""
    with pytest.MonkeyPatch.context() as patched:
        once = cache(data.load)
        for module in ("macs.experiments.margins", "macs.research.paper_runs"):
            patched.setattr(f"{module}.load", once)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("micro")


@pytest.fixture(scope="module")
def done(folder: Path) -> Reproduction:
    return reproduce(Setup(MICRO, folder), ALL, Only(), progress=False)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of all trainings from here on."""
    methods: list[str] = []
    run, finetune = training.run, training.finetune

    def noted(spec: TrainingSpec, *arguments: Any, **options: Any) -> object:
        methods.append(spec.method)
        return run(spec, *arguments, **options)

    def measured(*arguments: Any, method: str, **options: Any) -> object:
        methods.append(method)
        return finetune(*arguments, method=method, **options)

    monkeypatch.setattr(training, "run", noted)
    monkeypatch.setattr(training, "finetune", measured)
    return methods


def nets_in(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("net.safetensors")}


def test_every_part_is_published_from_one_small_grid(done: Reproduction, folder: Path) -> None:
    assert len(done.results) == TRAININGS and not done.failures
    for page in publish_parts(ALL, done):
        kinds = {"md", "tex", "csv", "json"} if page.name != "figure3" else set()
        kinds |= {"svg", "pdf", "png"} if page.name.startswith("figure") else set()
        assert {file.suffix[1:] for file in page.files} == kinds
        assert not any(entry["lacking"] for entry in page.records)
        assert "rehearsal" in page.notes[0]
        assert page.name != "table1" or "ID lost at 95% of OOD caught (FPR95)" in "".join(page.notes)


def test_a_number_is_recomputed_from_the_kept_confidences(done: Reproduction, folder: Path) -> None:
    """AUROC of OE on every set, by scikit-learn, from the files alone."""
    (cell,) = folder.glob("cells/digits-wrn-10-1-oe-seed0/*/")
    kept: dict[str, list[tuple[int, np.ndarray]]] = {}
    for file in cell.glob("confidences-*.npz"):
        with np.load(file) as content:
            kept.setdefault(str(content["name"]).split(" ")[0], []).append((len(content["values"]), content["values"]))
    evaluation = done.results[PaperTraining("digits", "wrn-10-1", "oe")].test
    conf_in = done.results[PaperTraining("digits", "wrn-10-1", "oe")].confidences["id"]
    assert any(np.array_equal(values, conf_in) for _, values in kept["digits"])
    for result in evaluation.sets:
        ((_, conf_out),) = kept[result.name]
        is_ood = np.r_[np.zeros(len(conf_in)), np.ones(len(conf_out))]
        assert result.full.auroc == pytest.approx(roc_auc_score(is_ood, -np.r_[conf_in, conf_out]))


def test_every_method_starts_from_the_same_pretraining(done: Reproduction, folder: Path) -> None:
    (plain,) = folder.glob("cells/digits-wrn-10-1-msp-seed0/*/net.safetensors")
    specs = [RunFolder(file.parent).spec for file in folder.glob("cells/*/*/recipe.toml")]
    starts = {spec.start.source: spec.start.weights for spec in specs}
    assert starts.keys() == {"random", str(plain.resolve())}
    assert starts[str(plain.resolve())] == nets.weights_hash(nets.load(plain))


def test_all_hyper_parameters_but_method_and_margin_are_equal(done: Reproduction, folder: Path) -> None:
    files = [file for file in folder.glob("cells/*/*/recipe.toml") if "-msp-" not in str(file)]
    specs = [RunFolder(file.parent).spec for file in files]
    alike = [replace(spec, method="oe", recipe=replace(spec.recipe, options={})) for spec in specs]
    assert len({spec.to_toml() for spec in alike}) == 1
    assert len({weights.weights for weights in done.results.values()}) >= 6


def test_a_second_run_trains_and_scores_nothing(
    done: Reproduction,
    folder: Path,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = nets_in(folder)
    monkeypatch.setattr("macs.scores.ask", None)
    again = reproduce(Setup(MICRO, folder), ALL, Only())
    assert trained == [] and nets_in(folder) == before
    assert capsys.readouterr().err.count("(done before)") == TRAININGS
    assert {t: r.test for t, r in again.results.items()} == {t: r.test for t, r in done.results.items()}


def test_an_interrupted_grid_repeats_no_finished_training(
    done: Reproduction,
    tmp_path: Path,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setup = Setup(MICRO, tmp_path)
    real = training.run

    def stopping(*arguments: Any, **options: Any) -> object:
        if len(trained) == 3:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(training, "run", stopping)
        with pytest.raises(KeyboardInterrupt):
            reproduce(setup, ["table1"], Only(), progress=False)
    finished = nets_in(tmp_path)
    assert len(finished) == 3
    trained.clear()
    reproduce(setup, ["table1"], Only(), progress=False)
    assert len(trained) == TRAININGS - 3 - 1 - ABLATIONS  # Table 1 has none
    assert finished.items() <= nets_in(tmp_path).items()


def test_a_failure_in_the_middle_is_shown_and_the_rest_goes_on(
    done: Reproduction,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setattr("macs.methods.mixoe.MixtureOutlierExposure.step", broken)
    monkeypatch.setitem(SCALES, "smoke", MICRO)
    run("reproduce", "table1", "--out", tmp_path, "--json", expect=1)
    value = json.loads(capsys.readouterr().out)
    (name,) = value["failures"]
    assert "mixoe" in name and "out of memory (see" in value["failures"][name]
    (log,) = tmp_path.glob("cells/*mixoe*/*.log")
    assert "Traceback" in log.read_text()
    rows = {e["row"]: e["lacking"] for e in value["parts"][0]["entries"]}
    assert {row for row, word in rows.items() if word} == {"MixOE"} and rows["MixOE"] == "failed"
    table = (tmp_path / "table1.md").read_text()
    assert "| MixOE | failed |" in table and "out of memory" in table

    monkeypatch.undo()
    monkeypatch.setitem(SCALES, "smoke", MICRO)
    run("reproduce", "table1", "--out", tmp_path)
    assert "failed" not in (tmp_path / "table1.md").read_text()


def test_a_failed_pretraining_fails_what_starts_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MacsError("No weights today.")

    monkeypatch.setattr("macs.training.starting_net", broken)
    failed = reproduce(Setup(MICRO, tmp_path), ["figure5"], Only(), progress=False)
    assert not failed.results and len(failed.failures) == 5
    assert sum("its pretraining failed: No weights today." in why for why in failed.failures.values()) == 4


def test_the_released_loop_trains_each_margin_from_the_one_before(tmp_path: Path, trained: list[str]) -> None:
    scale = replace(MICRO, released=True, margins=(0.0, 0.5), near={"digits": "digits-8-9"})
    setup, only = Setup(scale, tmp_path), Only(("cifar10",), rows=("oe", "macs", "oe-long"))
    outcome = reproduce(setup, ["table1"], only, (0, 1), progress=False)
    assert not outcome.failures and sorted(trained) == sorted(2 * ["msp", "oe", "oe", "macs", "macs"])
    sets = bench(setup, "digits")
    chain = [
        PaperTraining("digits", "wrn-10-1", "macs", 0.0),
        PaperTraining("digits", "wrn-10-1", "macs", 0.5, round=1),
    ]
    first, second = (sets.cell(training) for training in chain)
    assert first is not None and second is not None
    assert second.spec.start.weights == nets.weights_hash(nets.load(first.folder.net_file, "wrn-10-1", 8))
    assert (first.spec.recipe.cosine, second.spec.recipe.cosine) == ("falling", "rising")
    (page,) = publish_parts(["table1"], outcome)
    rows = {entry["row"] for entry in page.records if not entry["section"]}
    assert rows == {"OE", "MaCS, m = 0.5", "OE, as long as MaCS with m = 0.5"}
    assert {entry["section"] for entry in page.records} == {"", "digits-8-9 (near)"}
    paired = [note for note in page.notes if "MaCS - OE in" in note]
    assert len(paired) == 4 and sum("digits-8-9 (near)" in note for note in paired) == 2
    results = [
        [r.test.mean("fpr95") for r in outcome.row(row, "digits", "wrn-10-1")[1]] for row in outcome.rows("table1")
    ]
    oe, macs_results, _ = results
    gaps = [100 * (a - b) for a, b in zip(macs_results, oe, strict=True)]
    assert any(f"FPR95, on all test images, is {np.mean(gaps):+.2f}" in note for note in paired)


def test_cells_of_another_version_are_kept_named_and_not_used(
    done: Reproduction,
    folder: Path,
    trained: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, version = nets_in(folder), macs.__version__
    monkeypatch.setattr("macs.experiments.cells.__version__", "99.0")
    reproduce(Setup(MICRO, folder), ["figure1"], Only())
    said = capsys.readouterr().err
    differs = f"in {folder / 'cells'}: macs is '{version}' there and '99.0' here"
    assert f"Kept but not used, 3 {differs}." in said  # the same weights come of the same pretraining
    assert sorted(trained) == ["macs", "msp", "oe"] and before.items() <= nets_in(folder).items()


@pytest.mark.slow
def test_two_seeds_are_two_trainings(folder: Path, done: Reproduction, trained: list[str]) -> None:
    both = reproduce(Setup(MICRO, folder), ["figure1"], Only(), seeds=(0, 1), progress=False)
    assert sorted(trained) == ["macs", "msp", "oe"]  # seed 0 was there
    weights = [both.results[PaperTraining("digits", "wrn-10-1", "oe", seed=seed)].weights for seed in (0, 1)]
    assert weights[0] != weights[1]


def test_given_weights_replace_the_pretraining(tmp_path: Path, trained: list[str]) -> None:
    net = nets.build("wrn-10-1", classes=8)
    nets.save(net, tmp_path / "mine.safetensors")
    setup = Setup(MICRO, tmp_path / "out", checkpoint=tmp_path / "mine.safetensors")
    reproduce(setup, ["figure1"], Only(), progress=False)
    assert sorted(trained) == ["macs", "oe"]
    (kept,) = tmp_path.glob("out/cells/*-msp-*/*/net.safetensors")
    assert nets.weights_hash(nets.load(kept)) == nets.weights_hash(net)
    assert "may have been trained on the held-out" in " ".join(bench(setup, "digits").notes())


def test_a_folder_of_weights_gives_those_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "cifar10-wrn-40-2.pt").touch()
    setup = Setup(LAB, tmp_path, checkpoint=tmp_path)
    assert setup.checkpoint_of("cifar10", "wrn-40-2") == tmp_path / "cifar10-wrn-40-2.pt"
    assert setup.checkpoint_of("cifar100", "wrn-40-2") is None


def test_validation_and_training_images_are_apart() -> None:
    sets = bench(Setup(MICRO, Path("unused")), "digits")
    trained_on = {image.tobytes() for image in sets.train.pixels[:]} | {i.tobytes() for i in sets.outliers.pixels[:]}
    examined = [sets.examination.val, sets.examination.val_outliers, sets.examination.test]
    for images in [*examined, *sets.examination.ood.values()]:
        assert len(images) <= MICRO.limit
        seen = sum(image.tobytes() in trained_on for image in images.pixels[:])
        assert seen <= 1, images.name  # patches of plain sky may be equal


def test_own_outliers_stand_for_missing_ones_in_the_lab_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for name, count in (("outliers_train.npy", 70), ("outliers_val.npy", 40)):
        np.save(tmp_path / name, random.integers(0, 256, (count, 16, 16, 3), np.uint8))
    lab = replace(MICRO, outliers="300k", complete=False)
    sets = bench(Setup(lab, tmp_path, tmp_path), "digits")
    assert len(sets.outliers) == 70 and len(sets.examination.val_outliers) == MICRO.limit
    note = " ".join(sets.notes())
    assert "outliers_train.npy (70) to train with" in note and "Without 300k" in note and "macs data get 300k" in note
    named = bench(Setup(lab, tmp_path, tmp_path, outliers="digits-outliers"), "digits")
    assert named.outliers.name == "digits-outliers" and not named.missing
    for refused_setup in (
        Setup(lab, tmp_path, tmp_path, outliers="300k"),
        Setup(replace(lab, complete=True), tmp_path, tmp_path),
    ):
        with pytest.raises(MacsError, match="300K_random_images"):
            bench(refused_setup, "digits")


def test_a_changed_budget_is_not_called_that_of_the_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--rows", "oe", "--nets", "wrn-40-2", "--ids", "cifar10", "--epoch-size", "64", "--epochs", "1")
    run("reproduce", "table1", "--out", tmp_path, *small)
    text = " ".join(capsys.readouterr().out.split())
    assert "The scale smoke, with other settings of fine-tuning." in text and "one epoch of 64 ID images" in text
    assert "A rehearsal" not in text


def test_missing_data_is_an_error_at_full_scale_and_a_gap_in_the_lab(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", str(tmp_path / "nothing"))
    line = refused(capsys, "reproduce", "table1", "--scale", "full", "--out", tmp_path / "out")
    assert "cifar10 (train), cifar10 (test)" in line and "--scale lab" in line
    assert "cifar-10-batches-py" in refused(capsys, "reproduce", "table1", "--scale", "lab", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_lists_what_is_done_and_what_is_not(
    done: Reproduction,
    folder: Path,
    tmp_path: Path,
    trained: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    planned = plan(Setup(MICRO, folder), ["table1"], Only(), (0, 1))
    states = {line.training.name: line.state for line in planned.lines}
    assert states["digits-wrn-10-1-energy-seed0"] == "done"
    assert states["digits-wrn-10-1-energy-seed1"] == "to do"
    todo = [line for line in planned.lines if line.state == "to do"]
    assert planned.seconds == pytest.approx(sum(line.seconds for line in todo)) and planned.seconds > 0
    assert trained == []  # every speed is known from the finished cells
    unknown = plan(Setup(MICRO, tmp_path), ["figure1"], Only(), (0,))
    assert trained == ["oe"] and all(line.seconds > 0 for line in unknown.lines)
    assert "Measuring how fast wrn-10-1 is trained" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_the_images_of_a_plan_are_those_of_the_training(done: Reproduction, folder: Path) -> None:
    (line,) = [
        line for line in plan(Setup(MICRO, folder), ["figure1"], Only(), (0,)).lines if line.training.method == "oe"
    ]
    scored = 30 * 2 + 30 + 5 * 30
    assert line.images == pytest.approx(2 * (32 + 32) + scored / 3)
    assert [duration(s) for s in (5, 150, 8000, 800_000)] == ["5 s", "2 minutes", "2 hours", "9 days"]


def test_the_whole_paper_is_planned_without_any_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.research.paper_estimate.speed", lambda *_: 1000.0)
    planned = plan(Setup(FULL, tmp_path, tmp_path / "nothing"), ALL, Only(), (0,))
    assert len(planned.lines) == 16 * 15 + 4 * 2 + 2 * 2 and {line.state for line in planned.lines} == {"data missing"}
    (pretraining,) = [line for line in planned.lines if line.training.name == "cifar10-wrn-40-2-msp-seed0"]
    scored = 10_000 + 5640 + 8925 + 10_000 + 26_032 + 36_500 + 2 * 2000
    assert pretraining.images == pytest.approx(100 * (48_000 // 128) * 128 + scored / 3)


def test_a_plan_as_released_has_the_released_epochs_of_imagenet32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("macs.research.paper_estimate.speed", lambda *_: 1000.0)
    setup = Setup(replace(FULL, released=True), tmp_path, tmp_path / "nothing")
    planned = plan(setup, ["table2"], Only(("imagenet32",), rows=("oe",)), (0,))
    (oe,) = [line for line in planned.lines if line.training.method == "oe"]
    scored = 50_000 + 5640 + 8925 + 10_000 + 26_032 + 36_500 + 2 * 2000
    assert oe.images == pytest.approx(10 * (300_000 // 128) * 256 + scored / 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["table1", "--ids", "cifar11"], "did you mean 'cifar10'"),
        (["table1", "--checkpoint", "nowhere.pt"], "no checkpoint at nowhere.pt"),
        (["table1", "--lr", "-1"], "lr must be at least 0"),
        (["table1", "--ids", "svhn"], "nothing of svhn"),
        (["table1", "--scale", "huge"], "--scale"),
    ],
)
def test_a_mistake_gets_one_sentence(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, "reproduce", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "--help"],
        ["reproduce", "table1", "--scale", "full"],
        ["reproduce", "x"],
        ["sweep", "--margins", "2"],
    ],
)
def test_help_and_mistakes_do_not_import_torch(arguments: list[str]) -> None:
    assert not needs_torch(*arguments)


@pytest.mark.data
def test_the_lab_runs_on_what_is_there_and_says_what_is_not(data_root: Path, tmp_path: Path) -> None:
    scale = replace(
        LAB,
        nets=dict.fromkeys(LAB.nets, "wrn-10-1"),
        pretraining=replace(LAB.pretraining, **BUDGET),
        finetuning=replace(LAB.finetuning, **BUDGET, batch_out=32),
        limit=50,
    )
    setup = Setup(scale, tmp_path, data_root)
    outcome = reproduce(setup, ["figure5"], Only(("cifar10", "imagenet32")), progress=False)
    assert set(outcome.missing) == {"imagenet32"}
    assert sorted(training.method for training in outcome.results) == ["macs", "macs", "mcd", "msp", "oe"]
    (page,) = publish_parts(["figure5"], outcome)
    text = " ".join(page.notes)
    assert (
        "Without isun" in text
        and "Without 300k" in text
        and "imagenet32 was not run" in text
        and "50 of 10,000" in text
    )
    assert {entry["lacking"] for entry in page.records if entry["id"] == "imagenet32"} == {"missing"}
