"""Recipes: nothing wrong slips through, and the margin is a setting of its method."""

import math
from dataclasses import replace
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.training.recipe import Recipe


def test_the_defaults_are_the_papers_protocol() -> None:
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch_in, recipe.batch_out) == (10, 128, 128)
    assert (recipe.lr, recipe.momentum, recipe.weight_decay) == (0.001, 0.9, 5e-4)


def test_the_margin_is_a_setting_of_the_method_and_given_once() -> None:
    recipe = Recipe(margin=0.5, options={"weight": 0.1})
    assert recipe == Recipe(options={"weight": 0.1, "margin": 0.5})
    assert replace(recipe, lr=0.1).options == recipe.options
    assert replace(recipe, options={}, margin=0.2) == Recipe(margin=0.2)
    for again in (0.5, 0.2):
        with pytest.raises(MacsError, match="given twice"):
            Recipe(margin=again, options={"margin": 0.5})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"margin": 1.0}, "below 1"),
        ({"margin": -0.1}, "at least 0"),
        ({"margin": float("nan")}, "margin"),
        ({"lr": float("nan")}, "lr"),
        ({"lr": "fast"}, "lr must be a number, not 'fast'"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"dropout": 1.0}, "dropout"),
        ({"lr": math.inf}, "lr must be a number, not inf"),
        ({"lr": 10**400}, "lr must be a number, not a number of about 400 digits"),
        ({"lr": 1e30}, "lr must be at least 0 and at most 1,000"),
        ({"final_lr": -1}, "final_lr"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"weight_decay": 1e30}, "weight_decay"),
        ({"weight_decay": math.inf}, "weight_decay"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 2**63}, "seed"),
        ({"epochs": 10**30}, "epochs"),
        ({"epochs": 1e300}, "epochs"),
        ({"batch_in": 0}, "batch_in"),
        ({"batch_out": 99999999999999999999}, "batch_out must be at least 0 and at most 100,000, not a number"),
        ({"options": {"mix": "\udcff"}}, "options.mix is .* UTF-8 cannot encode"),
        ({"options": {"weight": math.nan}}, "options.weight must be a number, not nan"),
        ({"options": {"weight": [1]}}, "options.weight"),
        ({"options": {1: 1}}, "options"),
        ({"augment": "blur"}, "auto, crop-flip, crop, resized-crop, none"),
        ({"jitter": 1.5}, "jitter must be at least 0 and at most 1"),
    ],
)
def test_wrong_values_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        Recipe(**settings)
