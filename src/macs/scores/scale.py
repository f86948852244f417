"""SCALE: energy after all features of an image are multiplied by one number, as ASH-S does, but none is set to 0.

    h' = h exp(s / t),    confidence(x) = log sum_k exp(W h' + b)_k        in (-inf, inf)

s is the sum of an image's features, t that of its largest (1 - p/100) D.

Xu, Chen, Franchi, Yao: Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement, ICLR 2024.
p = 85 is the value in their configuration, for ImageNet. It can also choose among other values by validation outliers;
we do not.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import linear

from macs.scores import FeatureScore, Known, score
from macs.scores.ash import kept, sharpening


@score("scale")
@dataclass(eq=False)
class Scale(FeatureScore):
    percentile: float = 85

    def learn(self, known: Known) -> None:
        self.weight, self.bias = known.weight, known.bias

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        largest, _ = kept(features, self.percentile)
        return linear(features * sharpening(features, largest), self.weight, self.bias).logsumexp(1)
