"""A batch in parts: the gradients of the whole batch, and batch norm whose statistics are updated once."""

from dataclasses import replace

import pytest
import torch

import macs
from macs import methods
from macs.data import ImageSet
from short_training import SHORT, TwoLayers, same, small_net, weights


def test_a_training_in_parts_ends_with_the_same_weights(known: ImageSet, outliers: ImageSet) -> None:
    results = []
    for accumulate in (1, 4):
        torch.manual_seed(0)
        net = TwoLayers()
        macs.finetune(net, known, outliers, recipe=replace(SHORT, accumulate=accumulate), progress=False)
        results.append(weights(net))
    for name, value in results[0].items():
        assert torch.allclose(value, results[1][name], atol=1e-5), name


@pytest.mark.parametrize("method", methods.available())
def test_every_method_trains_in_parts(method: str, known: ImageSet, outliers: ImageSet) -> None:
    net = small_net()
    recipe = replace(SHORT, epochs=1, epoch_size=64, accumulate=2, freeze="block1")
    before = weights(net)
    macs.finetune(net, known, outliers, method=method, recipe=recipe, progress=False)
    passes = 4 if method == "mixoe" else 2  # MixOE takes ID and mixed images through the network separately
    assert net.bn1.num_batches_tracked == 2 * passes
    assert net.block1.layer[0].bn1.num_batches_tracked == 0
    assert not same(weights(net), before)
