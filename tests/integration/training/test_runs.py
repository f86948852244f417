"""The run folder: whose it is, what it records, and what a killed process or an older version may have left in it."""

from pathlib import Path

import macs
from macs import nets
from macs.data import ImageSet
from macs.training.recipe import Recipe
from macs.training.runs import RunFolder
from macs.training.spec import Start


def test_the_record_says_where_weights_and_images_came_from(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    short = Recipe(epochs=1, batch_in=32, batch_out=32, lr=0.02)
    net = macs.training.starting_net("wrn-10-1", classes=3, seed=5)
    started = nets.weights_hash(net)
    macs.pretrain(net, known, recipe=short, run=tmp_path / "plain", progress=False)
    assert RunFolder(tmp_path / "plain").spec.start == Start("random", started, 5)
    trained = nets.weights_hash(net)
    macs.finetune(net, known, outliers, recipe=short, run=tmp_path / "tuned", progress=False)
    file = str((tmp_path / "plain/net.safetensors").resolve())
    assert RunFolder(tmp_path / "tuned").spec.start == Start(file, trained)
    loaded = nets.load(tmp_path / "plain")
    macs.finetune(loaded, known, outliers, recipe=short, run=tmp_path / "loaded", progress=False)
    assert RunFolder(tmp_path / "loaded").spec.start == Start(file, trained)
    changed = nets.load(tmp_path / "plain")
    changed.get_parameter("fc.bias").data += 1
    macs.finetune(changed, known, outliers, recipe=short, run=tmp_path / "changed", progress=False)
    assert RunFolder(tmp_path / "changed").spec.start.source == "memory"
    assert isinstance(known, ImageSet) and RunFolder(tmp_path / "plain").spec.train.source == "memory"
