"""What is refused or pointed out before a training, and what is said where its loss is no number any more."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from macs import methods
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.training.checks import check_fitness, divergence
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder
from short_training import SHORT, small_net


def test_what_fits_passes_in_silence(known: ImageSet, outliers: ImageSet) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        check_fitness(small_net(), known, outliers, SHORT, methods.build("macs"))
        check_fitness(small_net(), known, None, replace(SHORT, batch_out=0), methods.build("msp"))


def test_a_method_with_outliers_takes_some_in_every_step(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.raises(MacsError, match="^oe needs outliers, so batch_out must be at least 1[.]$"):
        check_fitness(small_net(), known, outliers, replace(SHORT, batch_out=0), methods.build("oe"))


def test_a_loss_that_is_no_number_names_the_place_the_suspects_and_what_is_kept(tmp_path: Path) -> None:
    """lr is unusual above 0.5, weights of terms above 100; epochs and steps are counted from 1."""
    large = divergence(Recipe(lr=2), methods.build("oe", {"weight": 300}), 4, 0, RunFolder(tmp_path))
    assert large == (
        "The loss of oe is not finite in epoch 5, by step 1; these settings are unusually large: lr = 2, weight = 300. "
        f"{tmp_path} keeps the last finished epoch."
    )
    usual = divergence(Recipe(lr=0.5), methods.build("oe"), 0, 9, None)
    assert usual.endswith(
        "epoch 1, by step 10; no setting is unusually large, so check the learning rate (0.5) and the starting weights."
    )
