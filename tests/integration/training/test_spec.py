"""TrainingSpec: the same after a round through its file, and enough to run the training again elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import macs
from cases import slow
from elsewhere import run_elsewhere
from macs import nets, training
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.methods.macs import MarginBoundedConfidence
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder
from macs.training.spec import Start, TrainingSpec
from tiny import noise, stripes

SHORT = Recipe(epochs=1, epoch_size=64, batch_in=32, batch_out=32, lr=0.01, precision="float32")


@pytest.mark.parametrize("method", ["energy", *slow("macs")])
def test_a_spec_is_run_by_another_process_with_the_same_bits(method: str, tmp_path: Path) -> None:
    train, outliers = (macs.data.load(name, "train", size=16) for name in ("digits", "digits-outliers"))
    _, train = train.split(100, seed=4)
    start = training.starting_net("wrn-10-1", classes=8, seed=7)
    macs.pretrain(start, train, recipe=replace(SHORT, lr=0.1), run=tmp_path / "plain", progress=False)
    net = nets.load(tmp_path / "plain")
    macs.finetune(net, train, outliers, method=method, recipe=SHORT, run=tmp_path / "tuned", progress=False)
    for name in ("plain", "tuned"):
        run_elsewhere(tmp_path / name / "recipe.toml", tmp_path / f"{name}-again")
        here, there = tmp_path / name, tmp_path / f"{name}-again/run"
        assert (here / "net.safetensors").read_bytes() == (there / "net.safetensors").read_bytes()
        assert RunFolder(here).spec == RunFolder(there).spec


def test_what_is_not_as_it_was_is_not_trained_with(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    np.save(tmp_path / "outliers.npy", noise(64, seed=3).pixels[:])
    train = macs.data.load("digits", "train", size=16)
    others = macs.data.load(tmp_path / "outliers.npy", "train", size=16)
    net = training.starting_net("wrn-10-1", classes=8)
    nets.save(net, tmp_path / "start.safetensors")
    net = nets.load(tmp_path / "start.safetensors")
    macs.finetune(net, train, others, recipe=SHORT, run=tmp_path / "run", progress=False)
    spec = RunFolder(tmp_path / "run").spec

    def refused(spec: TrainingSpec, words: str) -> None:
        with pytest.raises(MacsError, match=words):
            training.run(spec, tmp_path / "again", progress=False)
        assert not (tmp_path / "again").exists()

    nets.save(training.starting_net("wrn-10-1", classes=8, seed=1), tmp_path / "start.safetensors")
    refused(spec, "start.safetensors holds other weights")
    np.save(tmp_path / "outliers.npy", noise(64, seed=4).pixels[:])
    refused(spec, "outliers.npy has changed")
    refused(replace(spec, outliers=None, method="msp", start=Start("memory", "ff")), "weights in memory")
    macs.pretrain(training.starting_net("wrn-10-1", 3), known, recipe=SHORT, run=tmp_path / "held", progress=False)
    refused(RunFolder(tmp_path / "held").spec, "made in memory")


def test_a_method_may_be_given_as_one(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    method: Any = MarginBoundedConfidence(margin=0.2, variant="hinge")
    start = training.starting_net("wrn-10-1", classes=3)
    macs.finetune(start, known, outliers, method=method, recipe=SHORT, run=tmp_path / "run", progress=False)
    spec = RunFolder(tmp_path / "run").spec
    assert spec.method == "macs" and spec.recipe.options["variant"] == "hinge" and spec.recipe.options["margin"] == 0.2
    with pytest.raises(MacsError, match="settings of macs are given twice"):
        macs.finetune(start, stripes(64, 1), outliers, method=method, recipe=Recipe(margin=0.1), progress=False)
