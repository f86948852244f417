"""Maximum softmax probability: how sure the network is of its answer.

    confidence(x) = max_k softmax(z)_k        in [1/K, 1]                                           (MaCS paper, Eq. 2)

Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks, 2017.

In float32 a very confident network reaches exactly 1.0 on many images, as it does in everybody's code; the metrics
count such ties exactly. For finer confidences pass float64 logits.
"""

from torch import Tensor

from macs.inference import Outputs
from macs.losses import confidence as max_probability
from macs.scores import Score, score


@score("msp")
class MSP(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return max_probability(outputs.logits)
