"""Recipes: what is written is what is read, and nothing wrong slips through."""

import math
import os
from dataclasses import replace

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.training.recipe import PRETRAINING, Recipe


def test_the_defaults_are_the_papers_protocol():
    recipe = Recipe()
    assert (recipe.epochs, recipe.batch_in, recipe.batch_out) == (10, 128, 128)
    assert (recipe.lr, recipe.momentum, recipe.weight_decay) == (0.001, 0.9, 5e-4)


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        PRETRAINING,
        Recipe(
            id='a "quoted" folder\\with\nodd characters: ä', margin=0.0, options={"variant": "hinge", "weight": 0.25}
        ),
        Recipe(id="/photos/📷 of\t'us'", options={"joint": True, "mix": 'cut"mix', "weight": 1e-300}, method="mixoe"),
        Recipe(lr=np.float32(0.5), epochs=np.int64(3), size=64.0),
        Recipe(lr=1e-12, final_lr=0.0, dropout=0.0, seed=2**40, precision="float32"),
    ],
)
def test_a_recipe_survives_its_file(recipe, tmp_path):
    (tmp_path / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
    assert Recipe.from_toml(tmp_path / "recipe.toml") == recipe


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
        ({"size": 0}, "size"),
        ({"size": 10**9}, "size"),
        ({"epochs": 10**30}, "epochs"),
        ({"epochs": 1e300}, "epochs"),
        ({"batch_in": 0}, "batch_in"),
        ({"batch_out": 99999999999999999999}, "batch_out must be at least 0 and at most 100,000, not a number"),
        ({"id": ""}, "id must be a name or a path, not ''"),
        ({"net": " "}, "net must be a name"),
        ({"id": "photos\udcff"}, "UTF-8 cannot hold"),
        ({"options": {"mix": "\udcff"}}, "options.mix is .* UTF-8 cannot hold"),
        ({"options": {"weight": math.nan}}, "options.weight must be a number or text or true or false, not nan"),
        ({"options": {"weight": [1]}}, "options.weight"),
        ({"options": {1: 1}}, "options"),
        ({"augment": "blur"}, "auto, crop-flip, crop, resized-crop, none"),
        ({"method": "mac"}, "did you mean 'macs'"),
    ],
)
def test_wrong_values_are_refused(settings, words):
    with pytest.raises(MacsError, match=words):
        Recipe(**settings)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch = 3", "'epoch'.*did you mean 'epochs'"),
        ("epochs = 'three'", "epochs must be a whole number"),
        ("epochs = ", "Cannot read"),
        ("\x00", "Cannot read"),
        ("epochs = 1\nepochs = 2", "Cannot read.*overwrite"),
        ("epochs = " + 5000 * "9", "Cannot read.*digits"),
        ("epochs = 0x" + 5000 * "f", "epochs must be at least 1 .* not a number of about 6021 digits"),
        ("options = [0x" + 5000 * "f" + "]", "options must be"),
        ("options = " + 5000 * "[" + 5000 * "]", "nested too deeply"),
        ("epochs = 2020-01-01", "epochs must be a whole number"),
        ("lr = inf", "lr must be a number, not inf"),
        ("id = '" + 5000 * "x" + "'\nepochs = '" + 5000 * "x" + "'", "epochs must be a whole number, not 'x{79}[.]{3}"),
        ("\udcff\udcfe", "not a text in UTF-8"),
    ],
)
def test_a_bad_file_is_named(text, words, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_bytes(os.fsencode(text))
    with pytest.raises(MacsError, match=words) as caught:
        Recipe.from_toml(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path, "is a folder, not a recipe"), (tmp_path / "fifo", "is a FIFO, not a recipe")):
        with pytest.raises(MacsError, match=words):
            Recipe.from_toml(path)


def test_a_file_leaves_the_rest_to_the_base(tmp_path):
    (tmp_path / "recipe.toml").write_text("\ufeffepochs = 3\n", encoding="utf-8")  # with a mark, as Notepad writes it
    assert Recipe.from_toml(tmp_path / "recipe.toml") == Recipe(epochs=3)
    assert Recipe.from_toml(tmp_path / "recipe.toml", PRETRAINING) == replace(PRETRAINING, epochs=3)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MacsError, match="no recipe at"):
        Recipe.from_toml(tmp_path / "nowhere.toml")
