"""Samplers: which outliers are the hardest, afresh in every epoch, and the same after a resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

import macs
from macs import methods, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.recipe import Recipe
from macs.training.runs import Epoch
from macs.training.training_batches import features_suffice
from short_training import SHORT, TwoLayers, same, small_net, weights

HARDEST = replace(SHORT, outlier_sampling="hardest", batch_in=32, batch_out=8, epoch_size=64)  # 16 in an epoch


def test_each_epoch_takes_what_the_network_finds_hard_by_then(
    known: ImageSet, outliers: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = scores.ask

    def watched(net: nn.Module, images: ImageSet, *rest: Any) -> Any:
        asked.append((weights(net), len(images)))
        return ask(net, images, *rest)

    monkeypatch.setattr(scores, "ask", watched)
    net = small_net()
    macs.finetune(net, known, outliers, method="oe", recipe=HARDEST, progress=False)
    # Two epochs: one pool each, although the first batch is also looked at before the training.
    assert [count for _, count in asked] == [64, 64]
    assert not same(asked[0][0], asked[1][0])


def test_a_resumed_run_ends_with_the_same_bits(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def kill(epoch: Epoch, net: nn.Module) -> None:
        raise Killed

    def train(name: str, recipe: Recipe = HARDEST, **options: Any) -> dict[str, Tensor]:
        net, run = small_net(), tmp_path / name
        macs.finetune(net, known, outliers, method="oe", recipe=recipe, run=run, progress=False, **options)
        return weights(net)

    through = train("through")
    with pytest.raises(Killed):
        train("killed", on_epoch=kill)
    assert same(train("killed", resume=True), through)
    assert not same(train("random", replace(HARDEST, outlier_sampling="random")), through)
    # At random, the quantile changes nothing; it is still a part of the record.
    other = replace(HARDEST, outlier_sampling="random", outlier_quantile=0.5)
    assert same(train("another", other), train("random", replace(HARDEST, outlier_sampling="random"), resume=True))


def test_it_needs_the_whole_network_and_methods_without_outliers_ignore_it(known: ImageSet) -> None:
    frozen = Recipe(freeze="backbone", outlier_sampling="hardest")
    assert not features_suffice(TwoLayers(), methods.build("oe"), frozen, (3, 16, 16))
    macs.finetune(small_net(), known, None, method="msp", recipe=replace(HARDEST, epochs=1), progress=False)
    with pytest.raises(MacsError, match="outlier_quantile must be at least 0 and below 1"):
        Recipe(outlier_quantile=1.0)
    with pytest.raises(MacsError, match="outlier_sampling must be one of random, hardest"):
        Recipe(outlier_sampling="easiest")  # type: ignore[arg-type]
