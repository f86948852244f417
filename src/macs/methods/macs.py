"""MaCS: outlier exposure, and a penalty that pushes ID and outlier confidences a margin apart.

    L = CE(f(x), y) + weight * CE(f(o), uniform) + margin_weight * W                          (paper, Eq. 5)

with a_i, b_j the largest softmax probabilities of ID images and outliers, and W by variant

    margin      max(0, m - MCD),  MCD = mean_ij max(0, a_i - b_j)^2                           (paper, Eq. 3 and 4)
    hinge       mean_ij max(0, m - (a_i - b_j))^2      ours: pushes exactly the pairs that violate the margin
    unbounded   -MCD                                   the ablation "without margin" (paper, Fig. 5)

At m = 0 the `margin` variant is outlier exposure. `reduction="paper"` divides the double sum by N alone, as Eq. 3 is
printed; MCD then exceeds any margin almost at once and the term vanishes.

Tamang, Bouadjenek, Dazeley, Aryal: Margin-bounded Confidence Scores for Out-of-Distribution Detection, ICDM 2024.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.core.settings import Span, Weight
from macs.losses import confidence, hinge_penalty, macs_penalty, mcd, outlier_exposure
from macs.methods import Method, method


@method("macs")
@dataclass(frozen=True)
class MarginBoundedConfidence(Method):
    margin: Annotated[float, Span(0, 1, open="most")] = 0.5
    weight: Weight = 0.5
    margin_weight: Weight = 0.5
    variant: Literal["margin", "hinge", "unbounded"] = "margin"
    reduction: Literal["mean", "paper"] = "mean"

    @property
    def gap_limit(self) -> float | None:
        """The margin, if it bounds MCD itself; with `hinge` it bounds pairs, with reduction `paper` another sum."""
        return self.margin if (self.variant, self.reduction) == ("margin", "mean") else None

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        outlier_exposed = cross_entropy(logits_in, labels) + self.weight * outlier_exposure(logits_out)
        return outlier_exposed + self.margin_weight * self.penalty(confidence(logits_in), confidence(logits_out))

    def penalty(self, conf_in: Tensor, conf_out: Tensor) -> Tensor:
        """The term W of this variant."""
        if self.variant == "hinge":
            return hinge_penalty(conf_in, conf_out, self.margin)
        if self.variant == "unbounded":
            return -mcd(conf_in, conf_out, self.reduction)
        return macs_penalty(conf_in, conf_out, self.margin, self.reduction)
