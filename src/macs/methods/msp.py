"""MSP: the plain classifier, whose largest softmax probability is its confidence.

    L = CE(f(x), y)

Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks,
ICLR 2017.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.methods import Method, method


@method("msp")
@dataclass(frozen=True)
class MaximumSoftmaxProbability(Method):
    needs_outliers = False

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        return cross_entropy(logits_in, labels)
