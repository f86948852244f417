"""Recipes: what is written is what is read, and nothing wrong slips through."""

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
        ({"lr": "fast"}, "lr must be float, not 'fast'"),
        ({"epochs": 1.5}, "epochs must be int"),
        ({"epochs": True}, "epochs must be int"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"dropout": 1.0}, "dropout"),
        ({"augment": "blur"}, "auto, crop-flip, crop, none"),
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
        ("epochs = 'three'", "epochs must be int"),
        ("epochs = ", "Cannot read"),
        ("\x00", "Cannot read"),
    ],
)
def test_a_bad_file_is_named(text, words, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(MacsError, match=words) as caught:
        Recipe.from_toml(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MacsError, match="no recipe at"):
        Recipe.from_toml(tmp_path / "nowhere.toml")
