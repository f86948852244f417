"""Virtual-logit matching: the energy, less the norm of the features outside the principal space of training images.

    o = -W^+ b                                                  the origin, where all logits are 0
    r(x) = || R^T (f - o) ||                                    norm outside the principal space of training features
    alpha = sum_i max_k z_ik / sum_i r(x_i)                     over training images, so that both have the same size
    confidence(x) = log sum_k exp(z_k) - alpha r(x)             in (-inf, inf)

alpha r is the logit of an extra, virtual class. Its softmax probability, the paper's score, falls as the confidence
above rises. R holds the eigenvectors of sum_i (f_i - o)(f_i - o)^T after the `dimensions` largest.

Wang, Li, Feng, Zhang: ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022. The principal space has 1000
dimensions of 2048 features or more and 512 of 768 or more, as in their code for ImageNet. Of fewer features it has
half, which is our choice: their 512 would leave little or nothing outside.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score


def principal_dimensions(features: int) -> int:
    """The number of dimensions of the principal space, for so many features."""
    if features >= 2048:
        return 1000
    return 512 if features >= 768 else features // 2


@score("vim")
@dataclass
class ViM(Score):
    reads = "features"
    fitted_to = "training images"
    uses_head = True
    dimensions: Annotated[int | None, Span(0, 10**9)] = None
    origin: Tensor = field(init=False)
    axes: Tensor = field(init=False)
    alpha: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        features, weight, bias = (tensor.cpu().double() for tensor in (known.features, known.weight, known.bias))
        count = features.shape[1]
        inside = principal_dimensions(count) if self.dimensions is None else self.dimensions
        origin = -torch.linalg.pinv(weight) @ bias
        around = features - origin
        axes = torch.linalg.eigh(around.T @ around).eigenvectors[:, : max(0, count - inside)]  # eigenvalues ascend
        residual = (around @ axes).norm(dim=1).mean()
        if residual <= 1e-6 * around.norm(dim=1).mean():
            raise MacsError(f"ViM finds no residual in {len(known)} training images of {count} features; give more.")
        return {
            "origin": origin.to(known.features),
            "axes": axes.to(known.features),
            "alpha": known.logits.amax(1).mean() / residual.to(known.logits),
        }

    def confidence(self, outputs: Outputs) -> Tensor:
        residual: Tensor = ((outputs.features - self.origin) @ self.axes).norm(dim=1)
        return outputs.logits.logsumexp(1) - self.alpha * residual
