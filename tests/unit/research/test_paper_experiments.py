"""A training is kept in a small file and read again; tables follow from such files, computed here by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.evaluation import measure
from macs.experiments.cells import Result
from macs.research.paper_experiments import experiment_table, experiment_tables, keep_trainings, kept_training
from macs.research.paper_grid import LAB, Only, PaperTraining
from macs.research.paper_runs import Reproduction, Setup
from macs.research.study_tables import MARKERS
from repository import ROOT

OE = PaperTraining("cifar10", "wrn-40-2", "oe")
MACS = PaperTraining("cifar10", "wrn-40-2", "macs", 0.5)


def result(far: list[float], mcd: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4)) -> Result:
    known, near = np.array([0.9, 0.8, 0.7, 0.6], np.float32), np.array([0.85], np.float32)
    unknown = {"svhn": np.array(far, np.float32)}
    evaluation = measure("cifar10", np.array([True, True, True, False]), known, unknown)
    return Result(evaluation, evaluation, {"id": known, **unknown, "cifar100": near}, mcd, "weights")


def kept(folder: Path, results: dict[PaperTraining, Result]) -> list[Path]:
    seeds = tuple({training.seed for training in results})
    keep_trainings(Reproduction(Setup(LAB, folder), seeds, Only(), results))
    return sorted((folder / "trainings").glob("*.npz"))


def test_a_kept_training_says_what_the_network_said(tmp_path: Path) -> None:
    (file,) = kept(tmp_path, {replace(MACS, seed=3): result([0.65, 0.5])})
    again = kept_training(file)
    assert again.training == replace(MACS, seed=3)
    assert again.about["recipe"]["epoch_size"] == 10_000
    assert again.about["accuracy"] == 0.75
    np.testing.assert_allclose(again.confidences["svhn"], [0.65, 0.5], atol=3e-4)
    assert again.mean("auroc", near=False) == 7 / 8
    assert again.mean("fpr95", near=True) == 3 / 4


def test_energies_are_kept_exactly(tmp_path: Path) -> None:
    """Half precision made ties of them."""
    unlike = result([9.6214, 9.6215])
    (file,) = kept(tmp_path, {OE: unlike})
    assert (kept_training(file).confidences["svhn"] == unlike.confidences["svhn"]).all()


def test_rows_are_means_over_seeds_and_end_with_the_paired_difference(tmp_path: Path) -> None:
    # Per seed: AUROC 7/8 and FPR95 1/4, or 8/8 and 0. Differences of FPR95: -25 and 0, so -12.5 ± 12.706 * 12.5.
    worse, better = result([0.65, 0.5]), result([0.5, 0.4])
    seeds = {OE: worse, replace(OE, seed=1): worse, MACS: better, replace(MACS, seed=1): worse}
    table = experiment_table([kept_training(file) for file in kept(tmp_path, seeds)])
    cells = {row[0][0]: [text for text, _ in row[1:]] for row in table.sections[""]}
    assert table.header[0] == "10 epochs of 10,000 + 10,000"
    assert cells["OE"][:2] == ["87.50 ± 0.00", "25.00 ± 0.00"]
    assert cells["OE"][2:] == ["25.00 ± 0.00", "75.00 ± 0.00", "75.00 ± 0.00", "0.1000, 0.2000, 0.4000"]
    assert cells["MaCS, m = 0.5"][:2] == ["93.75 ± 6.25", "12.50 ± 12.50"]
    assert cells["MaCS − OE, 95% interval over 2 seeds"][1] == "−12.50 ± 158.83"


def test_the_released_loop_is_named_by_its_epochs(tmp_path: Path) -> None:
    chain = {replace(MACS, margin=m, round=n): result([0.5]) for n, m in enumerate(LAB.margins[:6])}
    table = experiment_table([kept_training(f) for f in kept(tmp_path, chain | {replace(OE, round=5): result([0.65])})])
    titles = [row[0][0] for row in table.sections[""]]
    assert titles[0] == "OE, 60 epochs"
    assert titles[1:7] == [f"MaCS, m = {m / 10:g}, {10 * m + 10} epochs" for m in range(6)]
    assert titles[7:] == ["MaCS − OE"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK")
    with pytest.raises(MacsError, match=r"x\.npz is not a training"):
        kept_training(tmp_path / "x.npz")


def test_the_page_on_the_paper_has_the_table_of_every_experiment() -> None:
    """After new trainings: .venv/bin/python study/refresh.py"""
    page = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    tables = experiment_tables(ROOT / "study" / "paper")
    assert {match["name"] for match in MARKERS.finditer(page)} == {*tables}
    for table in tables.values():
        assert table.markdown in page
