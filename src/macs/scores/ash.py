"""Activation shaping: energy after most of each image's features are set to 0 and the others are changed.

    h_(1) >= h_(2) >= ...        the features of one image; the n largest are kept, n = (1 - p/100) D
    s = sum of all features,     t = sum of those kept

    ash (ASH-S)    h' = h exp(s / t) where kept, else 0
    ash-b          h' = s / n        where kept, else 0
    ash-p          h' = h            where kept, else 0

    confidence(x) = log sum_k exp(W h' + b)_k        in (-inf, inf)

Djurisic, Bozanic, Ashok, Liu: Extremely Simple Activation Shaping for Out-of-Distribution Detection, ICLR 2023. p = 90
for ASH-S is the value in their code for ImageNet; for CIFAR-10 and CIFAR-100 it is 95. For the other two, their code
has no such values, and p = 65 is the default of its functions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score

Percentile = Annotated[float, Span(0, 100)]


def kept(features: Tensor, percentile: float) -> tuple[Tensor, Tensor]:
    """The largest features of each image, N x n, and their positions; of equal features the first is taken."""
    count = max(1, features.shape[1] - round(features.shape[1] * percentile / 100))
    if torch.compiler.is_compiling():  # ONNX has no stable sort, but its TopK takes the first of equal values
        return features.topk(count, dim=1)
    ordered, where = features.sort(dim=1, descending=True, stable=True)
    return ordered[:, :count], where[:, :count]


def sharpening(features: Tensor, largest: Tensor) -> Tensor:
    """exp(s / t), N x 1; 1 for an image whose features are all 0."""
    smallest = torch.finfo(features.dtype).tiny
    return (features.sum(1, keepdim=True) / largest.sum(1, keepdim=True).clamp(min=smallest)).exp()


@score("ash")
@dataclass
class ASH(Score):
    reads = "features"
    fitted_to = "last layer"
    uses_head = True
    if_signed: ClassVar[Literal["warn", "refuse"]] = "refuse"
    percentile: Percentile = 90
    weight: Tensor = field(init=False)
    bias: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        return {"weight": known.weight, "bias": known.bias}

    def shaped(self, features: Tensor, largest: Tensor) -> Tensor:
        """The new values of the features that are kept, N x n."""
        return largest * sharpening(features, largest)

    def confidence(self, outputs: Outputs) -> Tensor:
        largest, where = kept(outputs.features, self.percentile)
        shaped = torch.zeros_like(outputs.features).scatter(1, where, self.shaped(outputs.features, largest))
        return linear(shaped, self.weight, self.bias).logsumexp(1)


@score("ash-b")
@dataclass
class ASHB(ASH):
    percentile: Percentile = 65

    def shaped(self, features: Tensor, largest: Tensor) -> Tensor:
        return features.sum(1, keepdim=True).div(largest.shape[1]).expand_as(largest)


@score("ash-p")
@dataclass
class ASHP(ASH):
    if_signed = "warn"
    percentile: Percentile = 65

    def shaped(self, features: Tensor, largest: Tensor) -> Tensor:
        return largest
