"""A batch in parts: the gradients of the whole batch, and batch norm whose statistics are updated once."""

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from macs import methods, nets
from macs.data import ImageSet
from macs.methods import Batch
from macs.training.training_batches import MicroBatched
from short_training import TwoLayers, same, weights


def batch(images: int, outliers: int) -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(images, 3, 16, 16), torch.randint(3, (images,)), torch.rand(outliers, 3, 16, 16))


def gradients(net: nn.Module, run: nn.Module, given: Batch, **settings: Any) -> dict[str, Tensor]:
    net.zero_grad()
    methods.build("macs", {"margin": 0.9, **settings}).step(run, given).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in net.named_parameters()}


@pytest.mark.parametrize("parts", [2, 3, 5, 100])
@pytest.mark.parametrize("variant", ["margin", "hinge"])
def test_the_gradients_of_a_loss_over_pairs_are_those_of_the_whole_batch(parts: int, variant: str) -> None:
    net, given = TwoLayers(), batch(13, 9)
    expected = gradients(net, net, given, variant=variant)
    for name, gradient in gradients(net, MicroBatched(net, parts), given, variant=variant).items():
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-6), name


def test_only_one_part_is_in_the_network_at_a_time_and_has_its_share_of_outliers() -> None:
    class Watched(TwoLayers):
        def forward(self, pixels: Tensor) -> Tensor:
            seen.append((len(pixels), int((pixels[:, 0, 0, 0] > 1).sum())))
            return super().forward(pixels)

    seen: list[tuple[int, int]] = []
    net, given = Watched(), batch(8, 4)
    gradients(net, MicroBatched(net, 4), replace(given, outliers=given.outliers + 1))
    assert seen == [(3, 1)] * 8  # four parts forward, and again on the way back


def test_batch_norm_sees_each_part_and_updates_its_statistics_once() -> None:
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(768, momentum=0.1), nn.Linear(768, 3))
    given, by_hand = batch(6, 6), copy.deepcopy(net)
    gradients(net, MicroBatched(net, 3), given)
    together = torch.cat([given.images, given.outliers])
    with torch.no_grad():
        for first in range(3):
            by_hand(together[first::3])
    assert same(weights(net), weights(by_hand))
    assert net[1].momentum == 0.1 and net[1].num_batches_tracked == 3


def test_random_layers_draw_the_same_numbers_when_they_run_again(known: ImageSet, outliers: ImageSet) -> None:
    """Dropout of the first pass is that of the second, or the gradient would belong to another network."""
    net = nets.build("wrn-10-1", classes=3, dropout=0.5).train()
    given = batch(6, 6)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        ours = gradients(net, MicroBatched(net, 1), given)
        torch.manual_seed(3)
        expected = gradients(net, net, given)
    for name, gradient in ours.items():
        assert torch.allclose(gradient, expected[name], rtol=1e-4, atol=1e-6), name
