"""ReAct: energy after the features are clipped at a value that the features of ID images seldom exceed.

    h' = min(h, c),    confidence(x) = log sum_k exp(W h' + b)_k        in (-inf, inf)

c is a percentile of all features of ID training images.

Sun, Guo, Li: ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021. The 90th percentile is
theirs; their code for ImageNet takes it over validation images, ours over training images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor
from torch.nn.functional import linear

from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores.ash import Percentile


@score("react")
@dataclass
class ReAct(Score):
    reads = "features"
    fitted_to = "training images"
    uses_head = True
    if_signed = "warn"
    percentile: Percentile = 90
    ceiling: Tensor = field(init=False)
    weight: Tensor = field(init=False)
    bias: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        # numpy, since torch.quantile refuses more than 16 million numbers.
        ceiling = known.features.new_tensor(np.percentile(known.features.cpu().numpy(), self.percentile))
        return {"ceiling": ceiling, "weight": known.weight, "bias": known.bias}

    def confidence(self, outputs: Outputs) -> Tensor:
        return linear(outputs.features.minimum(self.ceiling), self.weight, self.bias).logsumexp(1)
