"""diverseMix: its draw written out, its place before any method, and the same bits after a resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import macs
from cases import slow
from macs.data import ImageSet
from macs.training.recipe import Recipe
from macs.training.runs import Epoch
from short_training import SHORT, same, small_net, weights

DIVERSE = replace(SHORT, outlier_mix="diverse")


@pytest.mark.parametrize("method", ["dal", *slow("macs", "energy", "mixoe")])
def test_any_method_trains_with_it_and_a_resumed_run_ends_with_the_same_bits(
    method: str, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill(epoch: Epoch, net: nn.Module) -> None:
        raise Killed

    def train(name: str, recipe: Recipe = DIVERSE, **options: Any) -> dict[str, torch.Tensor]:
        net, run = small_net(), tmp_path / name
        macs.finetune(net, known, outliers, method=method, recipe=recipe, run=run, progress=False, **options)
        return weights(net)

    torch.manual_seed(11)
    through = train("through")
    with pytest.raises(Killed):
        train("killed", on_epoch=kill)
    torch.manual_seed(12)  # the caller's random numbers have no part in it
    assert same(train("killed", resume=True), through)
    assert not same(train("plain", SHORT), through)
