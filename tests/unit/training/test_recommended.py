"""`--method auto` stands for a method and its settings, which the run folder records."""

from dataclasses import replace

import pytest

from macs import methods
from macs.training.recipe import AUTO_RECIPE, FROM_LIBRARY, METHOD, SETTINGS, Recipe, resolved
from macs.training.spec import FROM_LIBRARY_OPTIONS, TrainingOptions


def test_auto_becomes_the_recommended_method_and_any_other_name_stays() -> None:
    assert resolved("auto", {}) == (METHOD, SETTINGS)
    assert resolved("auto", {"margin": 5.0})[1] == {**SETTINGS, "margin": 5.0}
    assert resolved("oe", {"weight": 1.0}) == ("oe", {"weight": 1.0})
    methods.build(*resolved("auto", {}))


@pytest.mark.parametrize("base", [TrainingOptions(), TrainingOptions(method="oe")], ids=["macs", "oe"])
def test_options_with_auto_are_those_of_the_method(base: TrainingOptions) -> None:
    options = base.updated({"method": "auto", "options": {"margin_weight": 1.0}})
    assert options.method == METHOD
    assert options.recipe.options == {**SETTINGS, "margin_weight": 1.0}


def test_auto_brings_its_learning_rate_and_average_to_a_trained_network_of_ours() -> None:
    start = TrainingOptions(checkpoint="trained.pt")
    assert start.updated({"method": "auto"}).recipe == Recipe(options=SETTINGS, **AUTO_RECIPE)
    assert start.updated({"method": "auto", "lr": 0.5}).recipe == Recipe(options=SETTINGS, **AUTO_RECIPE | {"lr": 0.5})
    assert TrainingOptions().updated({"method": "auto"}).recipe == Recipe(options=SETTINGS)  # random weights
    library = {"method": "auto", "net": "timm/resnet50", "checkpoint": "pretrained"}
    assert FROM_LIBRARY_OPTIONS.updated(library).recipe == replace(FROM_LIBRARY, options=SETTINGS)
