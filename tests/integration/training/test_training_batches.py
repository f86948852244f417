"""Training on the features of a frozen backbone: the same weights as on pixels, and each image passes only once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import macs
from borrowed import built
from macs import methods, nets
from macs.data import ImageSet
from macs.training import training_batches
from macs.training.training_batches import features_suffice
from short_training import SHORT, TwoLayers, small_net, stopping, weights
from tiny import noise, stripes

HEAD = replace(SHORT, freeze="backbone", lr=0.1)


def on_pixels(
    net: nn.Module, *images: ImageSet, patch: pytest.MonkeyPatch, **options: Any
) -> list[macs.training.runs.Epoch]:
    """The same training with the whole network in every step."""
    with patch.context() as patched:
        patched.setattr(training_batches, "features_suffice", lambda *_: False)
        return macs.finetune(net, *images, progress=False, **options)


@pytest.mark.parametrize("method", ["macs", "energy", "msp"])
@pytest.mark.parametrize("settings", [{}, {"epoch_size": 50, "balance": True, "optimizer": "adamw", "warmup": 1.0}])
def test_features_give_the_same_weights_as_pixels(
    method: str, settings: dict[str, Any], known: ImageSet, outliers: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(HEAD, epochs=3, **settings)
    one, other = small_net(), small_net()
    history = macs.finetune(one, known, outliers, method=method, recipe=recipe, progress=False)
    expected = on_pixels(other, known, outliers, method=method, recipe=recipe, patch=monkeypatch)
    for name, value in weights(other).items():
        assert torch.allclose(weights(one)[name], value, atol=1e-5), name
    assert not torch.allclose(one.fc.weight, small_net().fc.weight, atol=1e-2)
    for ours, theirs in zip(history, expected, strict=True):
        assert (ours.loss, ours.accuracy, ours.mcd) == pytest.approx(
            (theirs.loss, theirs.accuracy, theirs.mcd), abs=1e-4
        )


@pytest.mark.parametrize("name", ["timm/test_resnet", "timm/test_vit"])
def test_networks_of_others_learn_on_features_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("timm")
    known, outliers = stripes(40, 1, 64), noise(40, 2, 64)
    for make in (lambda: built(name, 64), own_net):
        one, other = make(), make()
        assert features_suffice(one, methods.build("macs"), HEAD, (3, 64, 64))
        macs.finetune(one, known, outliers, recipe=HEAD, progress=False)
        on_pixels(other, known, outliers, recipe=HEAD, patch=monkeypatch)
        for key, value in weights(other).items():
            assert torch.allclose(weights(one)[key], value, atol=1e-4), key


def own_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.AvgPool2d(4), nn.Flatten(), nn.Linear(768, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    )


class Counting(TwoLayers):
    """Counts the images that pass through it in a batch; up to eight at a time are the checks before a training."""

    seen = 0

    def forward(self, pixels: Tensor) -> Tensor:
        self.seen += len(pixels) if len(pixels) > 8 else 0
        return super().forward(pixels)


def test_each_image_that_is_drawn_passes_once(known: ImageSet, outliers: ImageSet) -> None:
    net = Counting()
    macs.finetune(net, known, outliers, recipe=replace(HEAD, epochs=12), progress=False)
    assert net.seen == len(known) + len(outliers)  # 12 epochs draw all of both
    net = Counting()
    macs.finetune(net, known, outliers, recipe=replace(HEAD, epochs=1, epoch_size=64), progress=False)
    assert net.seen == 64 + 64


def test_features_are_computed_again_on_resume(
    known: ImageSet, outliers: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the caller's network has other weights by then: those of the stored state count."""
    whole = small_net()
    macs.finetune(whole, known, outliers, recipe=HEAD, progress=False)
    stopping(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        macs.finetune(small_net(), known, outliers, recipe=HEAD, run=tmp_path / "run", progress=False)
    monkeypatch.undo()
    for seed in (5, 6):  # the second time it is finished
        torch.manual_seed(seed)
        other = nets.build("wrn-10-1", classes=3)
        macs.finetune(other, known, outliers, recipe=HEAD, run=tmp_path / "run", resume=True, progress=False)
        for name, value in weights(whole).items():
            assert torch.allclose(weights(other)[name], value, atol=1e-6), name
