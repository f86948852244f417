"""ReAct: energy after the features are cut off at a height that ID images seldom reach.

    h' = min(h, c),    confidence(x) = log sum_k exp(W h' + b)_k        in (-inf, inf)

c is a percentile of all features of ID training images.

Sun, Guo, Li: ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021. The 90th percentile is
theirs; their code for ImageNet takes it over validation images, ours over training images.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import linear

from macs.scores import FeatureScore, Known, score


@score("react")
@dataclass(eq=False)
class ReAct(FeatureScore):
    needs_training: ClassVar[bool] = True
    percentile: float = 90

    def learn(self, known: Known) -> None:
        # numpy, since torch.quantile refuses more than 16 million numbers.
        self.ceiling = known.features.new_tensor(np.percentile(known.features.cpu().numpy(), self.percentile))
        self.weight, self.bias = known.weight, known.bias

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        return linear(features.minimum(self.ceiling), self.weight, self.bias).logsumexp(1)
