"""The bank of training features that a score keeps: how it is drawn, and how features are compared with all of it."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

SEED = 0
PRODUCTS = 2**23  # of features with a bank at a time: 32 MB, however many features there are


def drawn(features: Tensor, count: int) -> Tensor:
    """Draw the positions of `count` of N features at random, in ascending order; all if there are no more."""
    if count >= len(features):
        return torch.arange(len(features), device=features.device)
    chosen = np.random.default_rng(SEED).choice(len(features), count, replace=False)
    return torch.from_numpy(np.sort(chosen)).to(features.device)


def compared(work: Callable[[Tensor], Tensor], features: Tensor, bank: Tensor) -> Tensor:
    """One number for each of N features from `work`, which multiplies what it gets with the whole bank.

    It gets a part of the features at a time, except in an exported graph, whose batches the runtime chooses.
    """
    rows = max(1, PRODUCTS // max(1, len(bank)))
    if torch.compiler.is_exporting() or len(features) <= rows:
        return work(features)
    parts = math.ceil(len(features) / rows)
    return torch.cat([work(part) for part in features.tensor_split(parts)])
