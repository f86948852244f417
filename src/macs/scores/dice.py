"""DICE: energy with only those weights of the last layer that contribute most to the logits of ID images.

    V_kd = W_kd * mean_i h_id,    confidence(x) = log sum_k exp((M * W) h + b)_k        in (-inf, inf)

M keeps the weights whose contribution V, over ID training images, lies above its p-th percentile.

Sun, Li: DICE: Leveraging Sparsification for Out-of-Distribution Detection, ECCV 2022. p = 90 is theirs for CIFAR.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor
from torch.nn.functional import linear

from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores.ash import Percentile


@score("dice")
@dataclass
class DICE(Score):
    reads = "features"
    fitted_to = "training images"
    uses_head = True
    percentile: Percentile = 90
    weight: Tensor = field(init=False)
    bias: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        contributions = known.weight * known.features.mean(0)
        threshold = float(np.percentile(contributions.cpu().numpy(), self.percentile))
        return {"weight": known.weight.where(contributions > threshold, 0), "bias": known.bias}

    def confidence(self, outputs: Outputs) -> Tensor:
        return linear(outputs.features, self.weight, self.bias).logsumexp(1)
