"""Drawing the training features that a score keeps as its bank."""

import numpy as np
import torch
from torch import Tensor

SEED = 0


def drawn(features: Tensor, count: int) -> Tensor:
    """Draw the positions of `count` of N features at random, in ascending order; all if there are no more."""
    if count >= len(features):
        return torch.arange(len(features), device=features.device)
    chosen = np.random.default_rng(SEED).choice(len(features), count, replace=False)
    return torch.from_numpy(np.sort(chosen)).to(features.device)
