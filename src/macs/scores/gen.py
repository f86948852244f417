"""Generalised entropy: small if one class has nearly all of the probability, and sensitive to small probabilities.

    confidence(x) = -sum_j p_j^gamma (1 - p_j)^gamma        over the M largest p = softmax(z), in (-inf, 0]

Liu, Lochman, Zach: GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection, CVPR 2023. gamma = 0.1 and
M = 100 are theirs for ImageNet; with 100 classes or fewer, all of them count.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Score, score


@score("gen")
@dataclass
class GEN(Score):
    gamma: Annotated[float, Span(0, 1, open="least")] = 0.1
    top: Annotated[int, Span(1, 10**9)] = 100

    def confidence(self, outputs: Outputs) -> Tensor:
        dtype = torch.promote_types(outputs.logits.dtype, torch.float32)
        p = outputs.logits.to(dtype).softmax(1).sort(1, descending=True).values
        # 1 - p of the largest p is computed as the sum of the others: for a confident network the difference would
        # round to 0, although its power with gamma = 0.1 is far from 0.
        rest = torch.cat([p[:, 1:].sum(1, keepdim=True), 1 - p[:, 1:]], 1)
        return -(p * rest)[:, : self.top].pow(self.gamma).sum(1)
