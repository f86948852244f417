"""Deep nearest neighbours: how near the features lie to those of ID training images.

    confidence(x) = -r_k,    r_k = || u - u_(k) ||,    u = f / ||f||        in [-2, 0]

u_(k) is the k-th nearest of the training images' unit features.

Sun, Ming, Zhu, Li: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022. k = 50 is theirs for CIFAR-10
with all 50,000 training images; they show that the choice matters little.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from macs.scores import FeatureScore, Known, score

ROWS = 1024  # images compared with all training images at once


@score("knn")
@dataclass(eq=False)
class KNN(FeatureScore):
    needs_training: ClassVar[bool] = True
    k: int = 50

    def learn(self, known: Known) -> None:
        self.bank = normalize(known.features)

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        k = min(self.k, len(self.bank))  # of fewer than k images, the farthest
        # Between unit vectors ||u - v||^2 = 2 - 2 u.v, so the nearest have the largest products.
        parts = normalize(features).split(ROWS)
        products = torch.cat([(part @ self.bank.T).topk(k, sorted=False).values.amin(1) for part in parts])
        return -(2 - 2 * products).clamp(min=0).sqrt()
