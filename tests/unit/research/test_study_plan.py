"""The plan: the same budget for every row, and an order of work in which whatever is finished makes a table."""

from dataclasses import replace

import pytest

from macs import methods
from macs.research.study_plan import (
    BASE,
    COSTS,
    IMAGES,
    LONGER,
    MORE_SEEDS,
    PROTOCOLS,
    ROWS,
    SCREENING,
    SEEDS,
    Row,
    Trial,
    trials,
)

TRAINED = [row for row in ROWS if row.method]


def first(row: Row) -> Trial | None:
    return row.candidates()[0]


def test_every_training_sees_the_same_number_of_images_and_its_settings_exist() -> None:
    for row in TRAINED:
        for trial in row.candidates():
            recipe = trial.recipe
            assert (recipe.epochs * recipe.epoch_size, recipe.batch_in, recipe.batch_out) == (IMAGES, 32, 32)
            assert replace(recipe, options={}, lr=BASE.lr) == replace(BASE, **row.recipe)
            methods.build(trial.method, recipe.options)


def test_every_row_comes_once_before_any_row_comes_twice() -> None:
    order = list(trials(ROWS, first))
    assert order[: len(ROWS)] == [row.candidates()[0] for row in ROWS]
    seeds = [trial.seed for trial in order]
    assert seeds == sorted(seeds)


def test_the_main_rows_have_five_seeds_and_the_others_three() -> None:
    for row in TRAINED:
        seeds = {trial.seed for trial in trials((row,), first)}
        assert seeds == ({*SEEDS, *MORE_SEEDS} if row.main else {*SEEDS})
    main = {row.name for row in ROWS if row.main}
    assert main == {"oe", "msp", "energy", "mixoe", "mixoe-cutmix", "macs", "oe-hardest"}


def test_a_trial_is_written_without_the_defaults_of_the_recipe() -> None:
    written = Trial("oe", replace(BASE, options={"weight": 1.0}, lr=0.001, seed=2)).as_dict()
    assert written["settings"] == {"weight": 1.0}
    assert written["recipe"]["seed"] == 2
    assert "lr" not in written["recipe"] and "momentum" not in written["recipe"]  # 0.001 is the recipe's own


def test_every_candidate_of_the_larger_study_has_one_seed_and_the_same_images() -> None:
    order = list(trials(SCREENING, first))
    assert {str(trial.as_dict()) for trial in order} == {
        str(t.as_dict()) for row in SCREENING for t in row.candidates()
    }
    for trial in order:
        recipe = trial.recipe
        images = (recipe.epochs * recipe.epoch_size, recipe.batch_in, recipe.batch_out)
        assert trial.larger and trial.seed == 0 and (not trial.method or images == (10_000, 64, 64))
        assert trial.as_dict()["larger"] and trial.sets != replace(trial, larger=False).sets
        methods.build(trial.method or "msp", recipe.options)


@pytest.mark.parametrize("rows", [COSTS, PROTOCOLS])
def test_another_budget_or_protocol_is_one_training(rows: tuple[Row, ...]) -> None:
    order = list(trials(rows, first))
    assert {str(trial.as_dict()) for trial in order} == {str(row.candidates()[0].as_dict()) for row in rows}
    assert all(trial.seed == 0 and trial.recipe.lr == BASE.lr for trial in order)


def test_with_more_training_nothing_but_the_epochs_differs() -> None:
    order = {str(trial.as_dict()) for trial in trials(LONGER, first)}
    for name, rate in (("oe", 0.002), ("hinge-averaged", 0.01), ("hinge-nearer", 0.01)):
        row = next(row for row in ROWS if row.name == name)
        (short,) = (each for each in row.candidates() if str(each.as_dict()) in order)
        assert short.recipe.lr == rate
        longer = [replace(short, recipe=replace(short.recipe, epochs=epochs)) for epochs in (1, 2, 4)]
        assert len({str(trial.as_dict()) for trial in longer} & order) == 3
    assert len(order) == 9 + 6  # two more seeds of three trainings
