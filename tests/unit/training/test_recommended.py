"""`--method auto` stands for a method and its settings, which the run folder records."""

import pytest

from macs import methods
from macs.training.recipe import METHOD, SETTINGS, resolved
from macs.training.spec import TrainingOptions


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
