"""TrainingSpec: the same after a round through its file, and enough to run the training again elsewhere."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from elsewhere import run_elsewhere

import macs
from macs import nets, training
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.methods.macs import MarginBoundedConfidence
from macs.training.options import TrainingOptions
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder
from macs.training.spec import Start, TrainingSpec, differences
from tiny import noise, stripes

SPEC = TrainingSpec(
    train=DataSpec("cifar10", "train", images=50_000, whole=50_000, fingerprint="aa"),
    outliers=DataSpec("/data/📷 of\t'us' \"\\", labelled=False, images=7, whole=7, fingerprint="bb"),
    net="wrn-40-2",
    classes=("plane", 'a "car"', "bird\n"),
    preparation=Preparation(size=48),
    start=Start("/weights/classifier.pt", "cc"),
    method="macs",
    recipe=Recipe(margin=0.3, options={"variant": "hinge", "weight": 0.25}, dropout=0.0, seed=2**40),
)
SPECS = [
    SPEC,
    replace(SPEC, outliers=None, method="msp", recipe=Recipe(batch_out=0), start=Start("random", "dd", 3)),
    replace(SPEC, start=Start("memory", "ee"), recipe=Recipe(options={"joint": True}), method="mixoe", classes=()),
    replace(
        SPEC,
        validation=DataSpec("cifar10", "val", images=5, fingerprint="ff"),
        validation_outliers=DataSpec("300k", "val", labelled=False, fingerprint="gg"),
        recipe=Recipe(keep="best"),
    ),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_spec_is_the_same_after_a_round_through_json_and_toml(spec: TrainingSpec, tmp_path: Path) -> None:
    assert TrainingSpec.from_dict(json.loads(json.dumps(spec.as_dict()))) == spec
    (tmp_path / "recipe.toml").write_text(spec.to_toml(), encoding="utf-8")
    assert TrainingSpec.from_toml(tmp_path / "recipe.toml") == spec
    asked = TrainingOptions.from_toml(tmp_path / "recipe.toml")
    assert (asked.id, asked.net, asked.method, asked.size) == (spec.train.source, spec.net, spec.method, 48)
    assert asked.recipe == spec.recipe and asked.validate is (spec.validation is not None)


def test_a_record_from_before_a_setting_existed_has_its_default() -> None:
    told = json.loads(json.dumps(SPEC.as_dict()))
    for setting in ("balance", "accumulate", "optimizer", "warmup", "freeze"):
        del told["recipe"][setting]
    assert "head_lr" not in told["recipe"] and TrainingSpec.from_dict(told) == SPEC


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda told: told.pop("recipe"), r"needs the table \[recipe\]"),
        (lambda told: told.pop("data"), r"needs the table \[data\]"),
        (lambda told: told.update(start=7), r"needs the table \[start\]"),
        (lambda told: told["network"].pop("name"), "net must be a name"),
        (lambda told: told["network"].update(classes="ab"), "classes must be a list"),
        (lambda told: told["recipe"].update(epoch=3), "did you mean 'epochs'"),
        (lambda told: told["recipe"].update(epochs=0), "epochs must be at least 1"),
        (lambda told: told["method"].update(settings=7), "options must be a table"),
        (lambda told: told["start"].update(seed="x"), "seed must be a whole number"),
        (lambda told: told["data"].update(validation=7), "DataSpec must be a table"),
        (lambda told: told["recipe"].update(keep="first"), "keep must be one of last, best"),
    ],
)
def test_what_is_no_spec_is_refused(change: Callable[..., Any], words: str) -> None:
    told = json.loads(json.dumps(SPEC.as_dict()))
    change(told)
    with pytest.raises(MacsError, match=words):
        TrainingSpec.from_dict(told)


def test_hashes_and_settings_are_the_identity_and_places_are_not() -> None:
    moved = replace(SPEC, train=replace(SPEC.train, source="/mnt/cifar"), start=Start("/mnt/classifier.pt", "cc"))
    assert moved.identity() == SPEC.identity()
    others = [
        replace(SPEC, train=replace(SPEC.train, fingerprint="x")),
        replace(SPEC, outliers=None),
        replace(SPEC, net="allconv"),
        replace(SPEC, classes=("plane",)),
        replace(SPEC, preparation=Preparation(size=32)),
        replace(SPEC, start=Start("/weights/classifier.pt", "x")),
        replace(SPEC, method="oe"),
        replace(SPEC, recipe=replace(SPEC.recipe, options={})),
        replace(SPEC, recipe=replace(SPEC.recipe, seed=1)),
        replace(SPEC, recipe=replace(SPEC.recipe, lr=1)),
        replace(SPEC, validation=replace(SPEC.train, fingerprint="x")),
        replace(SPEC, validation_outliers=replace(SPEC.train, fingerprint="x")),
        replace(SPEC, recipe=replace(SPEC.recipe, keep="best")),
    ]
    identities = [json.dumps(spec.identity(), sort_keys=True) for spec in (SPEC, *others)]
    assert len(set(identities)) == len(identities)


SHORT = Recipe(epochs=1, epoch_size=64, batch_in=32, batch_out=32, lr=0.01, precision="float32")


@pytest.mark.parametrize("method", ["macs", "energy"])
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


def test_what_came_later_is_part_of_the_identity_only_if_it_is_used() -> None:
    """Cells are found by it, and those that earlier versions trained are not to be trained again."""
    later = {"keep", "validation", "validation_outliers"}
    assert not later & SPEC.identity().keys()
    assert SPECS[-1].identity().keys() - SPEC.identity().keys() == later
    one, other = SPEC.identity(), replace(SPECS[-1], recipe=replace(SPEC.recipe, keep="best")).identity()
    both = differences(one, other), differences(other, one)
    assert [words[-1] for words in both] == ["keep is None there and 'best' here", "keep is 'best' there and None here"]
    for words in both:
        assert sorted(words[:2]) == ["other validation images", "other validation outliers"]
