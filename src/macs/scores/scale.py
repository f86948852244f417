"""SCALE: energy after all features of an image are multiplied by one number, as ASH-S does, but none is set to 0.

    h' = h exp(s / t),    confidence(x) = log sum_k exp(W h' + b)_k        in (-inf, inf)

s is the sum of an image's features, t that of its largest (1 - p/100) D.

Xu, Chen, Franchi, Yao: Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement, ICLR 2024.
p = 85 is the value in their configuration for ImageNet. Their code can also choose among other values on validation
outliers; ours does not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn.functional import linear

from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores.ash import Percentile, kept, sharpening


@score("scale")
@dataclass
class Scale(Score):
    reads = "features"
    fitted_to = "last layer"
    uses_head = True
    if_signed = "refuse"
    percentile: Percentile = 85
    weight: Tensor = field(init=False)
    bias: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        return {"weight": known.weight, "bias": known.bias}

    def confidence(self, outputs: Outputs) -> Tensor:
        largest, _ = kept(outputs.features, self.percentile)
        return linear(outputs.features * sharpening(outputs.features, largest), self.weight, self.bias).logsumexp(1)
