"""DICE: energy with only those weights of the last layer that contribute most to the logits of ID images.

    V_kd = W_kd * mean_i h_id,    confidence(x) = log sum_k exp((M * W) h + b)_k        in (-inf, inf)

M keeps the weights whose contribution V, over ID training images, lies above its p-th percentile.

Sun, Li: DICE: Leveraging Sparsification for Out-of-Distribution Detection, ECCV 2022. p = 90 is theirs for CIFAR.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import linear

from macs.scores import FeatureScore, Known, score


@score("dice")
@dataclass(eq=False)
class DICE(FeatureScore):
    needs_training: ClassVar[bool] = True
    percentile: float = 90

    def learn(self, known: Known) -> None:
        contributions = known.weight * known.features.mean(0)
        threshold = float(np.percentile(contributions.cpu().numpy(), self.percentile))
        self.weight, self.bias = known.weight.where(contributions > threshold, 0), known.bias

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        return linear(features, self.weight, self.bias).logsumexp(1)
