"""Samplers: which outliers an epoch draws from.

    random    all of them
    hardest   those on which the network is most confident, without the very first

`hardest` scores a pool before every epoch: four times as many outliers as the epoch takes, drawn at random, or all if
there are fewer. They are ranked by the network's largest softmax probability, the highest first. The first `quantile`
of the pool is left out, since the most confident outliers may well show a known class, and the epoch takes those that
follow. Pool and quantile (0.125) are those of informative outlier mining, without its extra class and attacks. A pool
costs about as much as one more epoch.

Chen, Li, Wu, Liang, Jha: ATOM: Robustifying Out-of-distribution Detection Using Outlier Mining, ECML PKDD 2021.
"""

import numpy as np
from torch import nn

from macs import scores
from macs.core.processes import ALONE, Processes
from macs.data import ImageSet
from macs.data.batches import POOL, draw, generator, steps_per_epoch
from macs.training.recipe import Recipe

POOL_SIZE = 4  # outliers in a pool for each one that an epoch takes


def outliers_of(
    epoch: int, net: nn.Module, train: ImageSet, outliers: ImageSet, recipe: Recipe, processes: Processes = ALONE
) -> ImageSet:
    """The outliers from which an epoch draws; the first of several processes ranks them for all."""
    if recipe.outlier_sampling == "random":
        return outliers
    wanted = steps_per_epoch(train, recipe.batch_in, recipe.epoch_size) * recipe.batch_out
    size = min(len(outliers), POOL_SIZE * wanted)
    pool = np.sort(draw(len(outliers), size, generator(recipe.seed, epoch, POOL)))
    confidences = processes.by_first(
        lambda: scores.ask(net, outliers.subset(pool), "msp", recipe.precision).confidences
    )
    ranked = pool[np.argsort(-confidences, kind="stable")]
    first = int(recipe.outlier_quantile * size)
    return outliers.subset(np.sort(ranked[first : first + wanted]))
