"""TrainingSpec: the same after a round through its file, and enough to run the training again elsewhere."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.training.recipe import Recipe
from macs.training.spec import Start, TrainingOptions, TrainingSpec, differences

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
