"""Maximum softmax probability: the probability that the network gives to its own prediction.

    confidence(x) = max_k softmax(z)_k        in [1/K, 1]                                           (MaCS paper, Eq. 2)

Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks, 2017.

In float32 a very confident network reaches exactly 1.0 on many images, as it does in other code too; the metrics count
such ties exactly. With float64 logits the confidences are finer.
"""

from torch import Tensor

from macs.inference import Outputs
from macs.losses import confidence as max_probability
from macs.scores import Score, score


@score("msp")
class MSP(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return max_probability(outputs.logits)
