"""Samplers: which outliers are the hardest, afresh in every epoch, and the same after a resume."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from macs.data import ImageSet
from macs.training.training_batches import outliers_of
from short_training import SHORT
from tiny import stripes

HARDEST = replace(SHORT, outlier_sampling="hardest", batch_in=32, batch_out=8, epoch_size=64)  # 16 in an epoch


class Brightness(nn.Module):
    """The brighter an image, the surer it is."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(sign))

    def forward(self, pixels: Tensor) -> Tensor:
        surety = self.sign * 10 * pixels.mean((1, 2, 3))
        return torch.stack([surety, torch.zeros_like(surety), torch.zeros_like(surety)], 1)


def greys(count: int) -> ImageSet:
    values = np.random.default_rng(0).permutation(count).astype(np.uint8)
    return ImageSet.from_array(np.broadcast_to(values[:, None, None, None], (count, 16, 16, 3)).copy(), name="greys")


def brightness(images: ImageSet) -> list[int]:
    return sorted(images.pixels[:][:, 0, 0, 0].tolist())


def test_the_hardest_follow_the_quantile_that_is_left_out() -> None:
    train, outliers = stripes(192, seed=1), greys(40)
    recipe = replace(HARDEST, outlier_quantile=0.25)
    # All 40 are the pool, as they are fewer than 4 x 16; the brightest ten are left out, and the next 16 taken.
    net = Brightness().train()
    chosen = outliers_of(0, net, train, outliers, recipe)
    assert brightness(chosen) == list(range(14, 30)) and net.training
    assert brightness(outliers_of(0, Brightness(), train, outliers, HARDEST)) == list(range(19, 35))
    everything = outliers_of(0, Brightness(), train, outliers, replace(recipe, outlier_sampling="random"))
    assert everything is outliers
    # If fewer are left than the epoch takes, these are all.
    assert brightness(outliers_of(0, Brightness(), train, greys(8), recipe)) == list(range(6))


def test_a_pool_of_many_is_drawn_afresh_for_every_epoch() -> None:
    train, outliers = stripes(192, seed=1), greys(250)
    chosen = [outliers_of(epoch, Brightness(), train, outliers, HARDEST) for epoch in (0, 0, 1)]
    assert brightness(chosen[0]) == brightness(chosen[1]) != brightness(chosen[2])
    assert all(len(each) == 16 and min(brightness(each)) > 100 for each in chosen)
