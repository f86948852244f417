"""`--method auto` stands for a method and its settings, which the run folder records."""

from pathlib import Path

import pytest

import macs
from macs import methods, nets
from macs.data import ImageSet
from macs.training.options import TrainingOptions
from macs.training.recommended import METHOD, SETTINGS, resolved
from macs.training.runs import RunFolder


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


def test_a_run_folder_records_what_was_used(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    net = nets.build("wrn-10-1", classes=3)
    recipe = macs.Recipe(epochs=1, epoch_size=32, batch_in=16, batch_out=16, precision="float32")
    macs.finetune(net, known, outliers, method="auto", recipe=recipe, run=tmp_path / "run", progress=False)
    spec = RunFolder(tmp_path / "run").spec
    assert spec.method == METHOD
    assert SETTINGS.items() <= spec.recipe.options.items()
