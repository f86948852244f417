"""Maximum logit: like MSP, but without the softmax, which discards the size of the logits.

    confidence(x) = max_k z_k        in (-inf, inf)

Hendrycks et al.: Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022.
"""

from torch import Tensor

from macs.inference import Outputs
from macs.scores import Score, score


@score("maxlogit")
class MaxLogit(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits.amax(1)
