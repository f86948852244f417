"""`--method auto` stands for a method and its settings, which the run folder records."""

from pathlib import Path

import macs
from macs import nets
from macs.data import ImageSet
from macs.training.recipe import METHOD, SETTINGS
from macs.training.runs import RunFolder


def test_a_run_folder_records_what_was_used(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    net = nets.build("wrn-10-1", classes=3)
    recipe = macs.Recipe(epochs=1, epoch_size=32, batch_in=16, batch_out=16, precision="float32")
    macs.finetune(net, known, outliers, method="auto", recipe=recipe, run=tmp_path / "run", progress=False)
    spec = RunFolder(tmp_path / "run").spec
    assert spec.method == METHOD
    assert SETTINGS.items() <= spec.recipe.options.items()
