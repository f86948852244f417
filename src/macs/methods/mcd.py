"""Outlier exposure and the mean confidence difference itself: the ablation "without margin" of MaCS.

    L = CE(f(x), y) + weight * CE(f(o), uniform) + mcd_weight * MCD,   MCD = mean_ij max(0, a_i - b_j)^2

with a_i, b_j the largest softmax probabilities of ID images and outliers. Without its margin, the paper says, the term
W of Eq. 4 is "simply the MCD value" (Fig. 5). Minimising MCD draws the confidences of ID images and outliers together,
so it works against outlier exposure. The opposite, an unbounded push apart, is `macs` with the variant `unbounded`.

Tamang, Bouadjenek, Dazeley, Aryal: Margin-bounded Confidence Scores for Out-of-Distribution Detection, ICDM 2024.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.core.settings import Weight
from macs.losses import confidence, mcd, outlier_exposure
from macs.methods import Method, method


@method("mcd")
@dataclass(frozen=True)
class ConfidenceDifference(Method):
    weight: Weight = 0.5
    mcd_weight: Weight = 0.5

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        outlier_exposed = cross_entropy(logits_in, labels) + self.weight * outlier_exposure(logits_out)
        return outlier_exposed + self.mcd_weight * mcd(confidence(logits_in), confidence(logits_out))
