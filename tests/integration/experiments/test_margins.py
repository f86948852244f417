"""The choice of the margin: a fair race from one start, decided on held-out images, with nothing hidden."""

import copy
import csv
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import macs
from command import run
from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.evaluation import Evaluation, measure
from macs.evaluation.tables import plain_text
from macs.experiments.cells import Result
from macs.experiments.margins import (
    MARGINS,
    Sweep,
    sweep,
    usual_margins,
)
from macs.training.recipe import Recipe
from macs.training.spec import TrainingSpec
from tiny import noise, save, stripes

RECIPE = Recipe(epochs=1, batch_in=32, batch_out=32, lr=0.02, precision="float32")
HELD = (stripes(60, seed=5), noise(60, seed=6))
TESTS: Any = {"test": stripes(50, seed=7), "ood": {"noise": noise(60, seed=8)}}


@pytest.fixture(scope="module")
def start() -> torch.nn.Module:
    torch.manual_seed(0)
    return nets.build("wrn-10-1", classes=3)


@pytest.fixture(scope="module")
def swept(
    start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path_factory: pytest.TempPathFactory
) -> Sweep:
    folder = tmp_path_factory.mktemp("sweep")
    return sweep(
        start,
        known,
        outliers,
        validation=HELD,
        run=folder,
        margins=(0.0, 0.8, 0.9),
        seeds=(0, 1),
        recipe=RECIPE,
        progress=False,
        **TESTS,
    )


def test_margin_zero_is_outlier_exposure_from_the_same_start(
    swept: Sweep, start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    net = copy.deepcopy(start)
    macs.finetune(net, known, outliers, method="oe", recipe=RECIPE, run=tmp_path / "oe", progress=False)
    (file,) = swept.folder.glob("macs-m0-seed0/*/net.safetensors")
    assert file.read_bytes() == (tmp_path / "oe/net.safetensors").read_bytes()


def test_a_margin_has_the_same_weights_alone_and_in_any_company(
    swept: Sweep, start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    before = nets.weights_hash(start)
    alone = sweep(start, known, outliers, validation=HELD, run=tmp_path, margins=(0.8,), recipe=RECIPE, progress=False)
    assert alone.points[0].results[0].weights == swept.points[1].results[0].weights
    assert nets.weights_hash(start) == before


def test_margin_and_seed_change_the_network(swept: Sweep) -> None:
    told = {(p.margin, seed): p.results[seed].weights for p, seed in product(swept.points, (0, 1))}
    assert told[0.0, 0] != told[0.9, 0] and told[0.0, 0] != told[0.0, 1] and told[0.9, 0] != told[0.9, 1]


def test_margins_out_of_reach_are_named_as_one_objective(swept: Sweep) -> None:
    assert all(point.mcd < 0.8 for point in swept.points)
    for seed in (0, 1):
        assert swept.points[1].results[seed].weights == swept.points[2].results[seed].weights
    (note,) = [note for note in swept.notes if "one objective" in note]
    assert "0.8, 0.9 are one objective: MCD never reached them" in note and "seeds 0, 1" in note


def result(fpr95: float, test: float, weights: str = "a", mcd: float = 0.5) -> Result:
    """A result with this share of ID images flagged, on validation and on test images."""

    def flagged(share: float) -> Evaluation:
        conf_in = np.where(np.arange(100) < 100 * share, 0.05, 0.9).astype(np.float32)
        return measure("x", np.ones(100, bool), conf_in, {"o": np.linspace(0.1, 0.2, 100, dtype=np.float32)})

    return Result(flagged(fpr95), flagged(test), {}, (mcd,), weights)


def test_the_table_the_files_and_the_plot(swept: Sweep) -> None:
    text = plain_text(swept)
    assert "validation-chosen" in text and "MCD" in text and "over 2 seeds" in text
    written = {path.name for path in swept.write()}
    assert {"sweep.json", "sweep.csv", "curve.svg", "curve.pdf", "curve.png"} == written
    value = json.loads((swept.folder / "sweep.json").read_text())
    rows = list(csv.DictReader((swept.folder / "sweep.csv").open()))
    assert value["chosen"] == swept.chosen and value["chosen_by"] == "validation" and len(rows) == 6
    for row in rows:
        curve = next(each for each in value["curve"] if each["margin"] == float(row["margin"]))
        assert curve["test"]["auroc"][int(row["seed"])] == float(row["test_auroc"])
    best = min(value["curve"], key=lambda p: (np.mean(p["validation"]["fpr95"]), -np.mean(p["validation"]["auroc"])))
    assert best["margin"] == value["chosen"]


def test_a_test_chosen_margin_says_so_everywhere(swept: Sweep) -> None:
    chosen = replace(swept, chosen_by="test")
    assert "test-chosen" in plain_text(chosen) and "MaCS*" in chosen.notes[0]
    assert chosen.as_dict()["chosen_by"] == "test"


def test_a_missing_plot_is_no_error(
    swept: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without(*_: object) -> None:
        raise MacsError("Figures need matplotlib: pip install 'macs-ood[report]'.")

    monkeypatch.setattr("macs.figures.margin_curves", without)
    assert [path.name for path in swept.write()] == ["sweep.json", "sweep.csv"]
    assert "macs-ood[report]" in capsys.readouterr().err


def test_the_command_sweeps_goes_on_and_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--id", "digits", "--outliers", "digits-outliers", "--size", 16, "--net", "wrn-10-1", "--epochs", 1]
    options += ["--epoch-size", 64, "--batch-in", 32, "--batch-out", 32, "--lr", "0.01", "--margins", "0", "0.9"]
    options += ["--ood", "digits-faces", "--run", tmp_path / "s"]
    run("sweep", *options, "--json")
    first = capsys.readouterr()
    value = json.loads(first.out)
    assert [point["margin"] for point in value["curve"]] == [0.0, 0.9]
    assert value["chosen_by"] == "validation" and "margin 0.9, seed 0" in first.err
    run("sweep", *options, "--choose", "test")
    again = capsys.readouterr()
    assert "test-chosen" in again.out and again.err.count("(done before)") == 2
    assert "sweep.csv" in again.out


def test_margins_on_energies_are_swept_in_their_own_units(
    start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, epoch_size=64, options={"on": "energy", "margin_weight": 1.0})
    assert usual_margins(recipe) == (1, 2, 5, 10, 20) and usual_margins(RECIPE) == MARGINS
    options: Any = {"validation": HELD, "run": tmp_path, "recipe": recipe, "progress": False}
    # The gaps of the first batches exceed the two small margins, so that both trainings are plain outlier exposure.
    result = sweep(start, known, outliers, margins=(1e-6, 2e-6, 10.0), **options)
    one, other, large = (point.results[0].weights for point in result.points)
    assert one == other != large and result.as_dict()["on"] == "energy"
    assert "The margins 1e-06, 2e-06 are one objective: the gaps were above them from the start" in result.notes[-1]
    with pytest.raises(MacsError, match="margin must be above 0 on energy"):
        sweep(start, known, outliers, margins=(0.0,), **options)


def test_images_in_memory_are_prepared_as_the_network_declares(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    net = nets.build("wrn-10-1", classes=3, preparation=nets.Preparation(24))
    sweep(net, known, outliers, validation=HELD, run=tmp_path, margins=(0, 0.5), recipe=RECIPE, progress=False)
    specs = [TrainingSpec.from_toml(file) for file in sorted(tmp_path.glob("*/*/recipe.toml"))]
    assert len(specs) == 2 and {spec.train.fingerprint for spec in specs} == {known.resized(24).spec.fingerprint}


def test_each_margin_keeps_its_best_epoch_on_the_held_out_images(
    start: torch.nn.Module, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    recipe = replace(RECIPE, epochs=3, keep="best")
    result = sweep(start, known, outliers, validation=HELD, run=tmp_path, margins=(0.5,), recipe=recipe, progress=False)
    (measured,) = result.points[0].results
    (metrics,) = tmp_path.glob("*/*/metrics.jsonl")
    epochs = [json.loads(line) for line in metrics.read_text().splitlines()]
    (kept,) = (epoch for epoch in epochs if epoch["kept"])
    assert measured.validation.accuracy == kept["validation_accuracy"]
    assert measured.validation.mean("auroc") == kept["validation_auroc"]
    assert kept["validation_accuracy"] + kept["validation_auroc"] == max(
        epoch["validation_accuracy"] + epoch["validation_auroc"] for epoch in epochs
    )


def test_no_image_of_a_folder_without_splits_is_both_trained_and_tested_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known, unknown = save(stripes(60, seed=1), tmp_path / "known"), save(noise(30, seed=2), tmp_path / "unknown")
    small = "--net wrn-10-1 --size 16 --epochs 1 --batch-in 16 --batch-out 16 --precision float32 --margins 0.5 --json"
    run("sweep", "--id", known, "--outliers", unknown, "--ood", unknown, *small.split(), "--run", tmp_path / "sweep")
    (record,) = (tmp_path / "sweep").rglob("recipe.toml")
    trained_on = TrainingSpec.from_toml(record).train
    assert (trained_on.images, trained_on.whole) == (42, 60)
    test = macs.data.load(known, size=16).split(0.3)[0].split(2 / 3)[1]  # a tenth, as docs/data.md says
    net, others = nets.load(record.parent), {"unknown": macs.data.load(unknown, size=16, labelled=False)}
    expected = macs.evaluate(net, test, others, precision="float32", progress=False)
    (point,) = json.loads(capsys.readouterr().out)["curve"]
    assert len(test) == 6 and point["test"]["auroc"] == [pytest.approx(expected.mean("auroc"))]
