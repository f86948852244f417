"""AOE (experimental): on outliers, teach the network a softened form of its own prediction, not a uniform one.

    L = CE(f(x), y) + weight * mean_j KL( q_j || softmax(z_j) ),   q_j = softmax(z_j / T) without gradient

With T > 1 the target q is flatter than the prediction, but keeps the order of the classes; repeated steps lead to the
uniform distribution.

Experimental: this is the loss as the authors' released code defines it, but their trainer has the call commented out,
so it is not known whether their numbers come from it.

AOE: Exhaustive Out-of-Distribution Detection via Recalibrating Outlier Labels, 2026.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div

from macs.core.settings import Span, Weight
from macs.methods import Method, method


@method("aoe")
@dataclass(frozen=True)
class AdaptiveOutlierExposure(Method):
    weight: Weight = 0.5
    temperature: Annotated[float, Span(0, 1000, open="least")] = 2.5

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        softened = (logits_out.detach() / self.temperature).log_softmax(1)
        divergence = kl_div(logits_out.log_softmax(1), softened, reduction="batchmean", log_target=True)
        return cross_entropy(logits_in, labels) + self.weight * divergence
