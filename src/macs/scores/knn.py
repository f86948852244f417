"""Deep nearest neighbours: how near the features lie to those of ID training images.

    confidence(x) = -r_k,    r_k = || u - u_(k) ||,    u = f / ||f||        in [-2, 0]

u_(k) is the k-th nearest of the training images' unit features.

Sun, Ming, Zhu, Li: Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022. k = 50 is theirs for CIFAR-10
with all 50,000 training images; they show that the choice matters little.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from torch import Tensor
from torch.nn.functional import normalize

from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score


@score("knn")
@dataclass
class KNN(Score):
    reads = "features"
    fitted_to = "training images"
    k: Annotated[int, Span(1, 10**9)] = 50
    bank: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        return {"bank": normalize(known.features)}

    def confidence(self, outputs: Outputs) -> Tensor:
        k = min(self.k, len(self.bank))  # of fewer than k images, the farthest
        # Between unit vectors ||u - v||^2 = 2 - 2 u.v, so the nearest have the largest products.
        products = (normalize(outputs.features) @ self.bank.T).topk(k, sorted=False).values.amin(1)
        return -(2 - 2 * products).clamp(min=0).sqrt()
