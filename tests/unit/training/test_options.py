"""Options of a training: flat files, records of runs, and what is given on top of them."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import tomli_w

from macs.core.errors import MacsError
from macs.training.recipe import Recipe
from macs.training.spec import PRETRAINING_OPTIONS, TrainingOptions


@pytest.mark.parametrize(
    "options",
    [
        TrainingOptions(),
        PRETRAINING_OPTIONS,
        TrainingOptions(
            id='a "quoted" folder\\with\nodd characters: ä',
            recipe=Recipe(margin=0.0, options={"variant": "hinge", "weight": 0.25}),
        ),
        TrainingOptions(
            id="/photos/📷 of\t'us'",
            method="mixoe",
            recipe=Recipe(options={"joint": True, "mix": 'cut"mix', "weight": 1e-300}),
        ),
        TrainingOptions(
            size=cast(Any, 64.0), recipe=Recipe(lr=cast(Any, np.float32(0.5)), epochs=cast(Any, np.int64(3)))
        ),
        TrainingOptions(recipe=Recipe(lr=1e-12, final_lr=0.0, dropout=0.0, seed=2**40, precision="float32")),
    ],
)
def test_options_survive_a_flat_file(options: TrainingOptions, tmp_path: Path) -> None:
    given = {key: value for key, value in options.flat().items() if value is not None}
    (tmp_path / "recipe.toml").write_text(tomli_w.dumps(given), encoding="utf-8")
    assert TrainingOptions.from_toml(tmp_path / "recipe.toml") == options
    assert TrainingOptions().updated(options.flat()) == options


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"size": 0}, "size"),
        ({"size": 10**9}, "size"),
        ({"id": ""}, "id must be a name or a path, not ''"),
        ({"net": " "}, "net must be a name"),
        ({"id": "photos\udcff"}, "UTF-8 cannot encode"),
        ({"method": "mac"}, "did you mean 'macs'"),
    ],
)
def test_wrong_values_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        TrainingOptions(**settings)


def test_what_is_given_overrides_one_setting_and_keeps_the_others() -> None:
    base = TrainingOptions(recipe=Recipe(margin=0.3, options={"weight": 0.1}))
    assert base.updated({"margin": 0.7}).recipe.options == {"margin": 0.7, "weight": 0.1}
    assert base.updated({"options": {"variant": "hinge"}}).recipe.options == {"margin": 0.3, "variant": "hinge"}
    assert base.updated({"options": {"margin": 0.9}}).recipe.options == {"margin": 0.9}
    assert base.updated({"lr": 0.5}).recipe == replace(base.recipe, lr=0.5)
    assert base.updated({"method": "oe"}).recipe.options == {}  # which would be refused by oe
    with pytest.raises(MacsError, match="given twice"):
        base.updated({"margin": 0.7, "options": {"margin": 0.9}})


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
        (100_000 * "options." + "x = 1", "nested too deeply"),
        ("epochs = 2020-01-01", "epochs must be a whole number"),
        ("lr = inf", "lr must be a number, not inf"),
        ("id = '" + 5000 * "x" + "'\nepochs = '" + 5000 * "x" + "'", "epochs must be a whole number, not 'x{79}[.]{3}"),
        ("\udcff\udcfe", "not text in UTF-8"),
    ],
)
def test_a_bad_file_is_named(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(os.fsencode(text))
    with pytest.raises(MacsError, match=words) as caught:
        TrainingOptions.from_toml(path)
    assert str(path) in str(caught.value)


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path, words in ((tmp_path, "is a folder, not a recipe"), (tmp_path / "fifo", "is a FIFO, not a recipe")):
        with pytest.raises(MacsError, match=words):
            TrainingOptions.from_toml(path)


def test_a_file_leaves_the_rest_to_the_base(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("\ufeffepochs = 3\n", encoding="utf-8")  # with a mark, as Notepad writes it
    assert TrainingOptions.from_toml(tmp_path / "recipe.toml") == TrainingOptions(recipe=Recipe(epochs=3))
    found = TrainingOptions.from_toml(tmp_path / "recipe.toml", PRETRAINING_OPTIONS)
    assert found == replace(PRETRAINING_OPTIONS, recipe=replace(PRETRAINING_OPTIONS.recipe, epochs=3))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="no recipe at"):
        TrainingOptions.from_toml(tmp_path / "nowhere.toml")
