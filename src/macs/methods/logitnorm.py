"""LogitNorm: cross-entropy of logits of constant norm, so that training cannot become confident by growing them.

    L = CE(z / (||z||_2 + 1e-7) / temperature, y)

It needs no outliers. The norm of the logits of a plain classifier grows through the whole training, on unknown images
as well; here only their direction is trained, and the norm stays small where the classifier has seen nothing.

The authors train from scratch, with a learning rate of 0.1 for 100 epochs, and score by MSP of the logits as they are.
With the temperature 0.04, theirs for CIFAR, the largest logit is at most 25 sqrt((K - 1) / K) above the mean of all K.

Wei, Xie, Cheng, Feng, An, Li: Mitigating Neural Network Overconfidence with Logit Normalization, ICML 2022.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.core.settings import Span
from macs.methods import Method, method

SMALLEST = 1e-7  # added to the norm


@method("logitnorm")
@dataclass(frozen=True)
class LogitNorm(Method):
    temperature: Annotated[float, Span(0, 1000, open="least")] = 0.04

    needs_outliers = False

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        norms = logits_in.norm(dim=1, keepdim=True) + SMALLEST
        return cross_entropy(logits_in / norms / self.temperature, labels)
