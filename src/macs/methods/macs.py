"""MaCS: outlier exposure, and a penalty that pushes ID and outlier confidences a margin apart.

    L = CE(f(x), y) + weight * CE(f(o), uniform) + margin_weight * W                          (paper, Eq. 5)

with a_i, b_j the largest softmax probabilities of ID images and outliers, and W by variant

    margin      max(0, m - MCD),  MCD = mean_ij max(0, a_i - b_j)^2                           (paper, Eq. 3 and 4)
    hinge       mean_ij max(0, m - (a_i - b_j))^2      ours: pushes exactly the pairs that violate the margin
    unbounded   -MCD                                   ours: it opens the gap, and no margin ever stops it

The paper's ablation "without margin" (Fig. 5) is +MCD, which closes the gap: the method `mcd`.

At m = 0 the `margin` variant is outlier exposure. `reduction="paper"` divides the double sum by N alone, as Eq. 3 is
printed; MCD then exceeds any margin almost at once and the term vanishes.

Probabilities saturate: to MCD, outliers of confidence 0.9999 and 0.99 are nearly the same. Our extension `on` puts the
margin on a quantity s that does not saturate, and that is higher for ID as well:

    confidence  s = max_k p_k                          the paper's, in [1/K, 1]
    energy      s = logsumexp(z)                       the negative free energy
    log-odds    s = log(p / (1 - p)), p = max_k p_k    the confidence itself, stretched to all real numbers

On energies and log-odds m > 0 is in units of s, and W is that of a_i = s_i / m, b_j = s_j / m at the margin 1. Its size
then does not depend on the scale of the logits:

    margin      max(0, 1 - mean_ij max(0, s_i - s_j)^2 / m^2)     m is the root mean square gap at which the push stops
    hinge       mean_ij max(0, m - (s_i - s_j))^2 / m^2           m is the gap of every pair
    unbounded   -mean_ij max(0, s_i - s_j)^2 / m^2                m is only a unit; s has no bound, so neither has -W

FPR95 is decided by a few pairs: the least confident ID images against the most confident outliers. Our second
extension, `focus`, takes the mean over these alone: with the share q, the pairs (i, j) of the round(q N_in) lowest s_i
and the round(q N_out) highest s_j, at least one of each. All others get no gradient from W; q = 1 takes every pair.

Tamang, Bouadjenek, Dazeley, Aryal: Margin-bounded Confidence Scores for Out-of-Distribution Detection, ICDM 2024.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.core.errors import MacsError
from macs.core.settings import Span, Weight
from macs.losses import confidence, energy, hinge_penalty, log_odds, macs_penalty, mcd, outlier_exposure
from macs.methods import Method, method

QUANTITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "confidence": confidence,
    "energy": lambda logits: -energy(logits),
    "log-odds": log_odds,
}
USUAL_MARGIN = {"confidence": 0.5, "energy": 10.0, "log-odds": 10.0}


@method("macs")
@dataclass(frozen=True)
class MarginBoundedConfidence(Method):
    margin: Annotated[float | None, Span(0, 1_000_000)] = None  # 0.5 on confidences, else 10
    weight: Weight = 0.5
    margin_weight: Weight = 0.5
    variant: Literal["margin", "hinge", "unbounded"] = "margin"
    reduction: Literal["mean", "paper"] = "mean"
    on: Literal["confidence", "energy", "log-odds"] = "confidence"
    focus: Annotated[float, Span(0, 1, open="least")] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.margin is None:
            object.__setattr__(self, "margin", USUAL_MARGIN[self.on])
        if self.on == "confidence" and self.m >= 1:
            raise MacsError(
                f"margin must be at least 0 and below 1, not {self.m:g}, as confidences differ by less than 1; for a "
                "margin in units of energy, set on to energy."
            )
        if self.on != "confidence" and self.m == 0:
            raise MacsError(f"margin must be above 0 on {self.on}, where it is the unit of the gaps, not 0.")

    @property
    def m(self) -> float:
        """The margin, which is never None once the method is made."""
        assert self.margin is not None
        return self.margin

    @property
    def score(self) -> str:
        """Energies are told apart by energy; log-odds order images as their confidences do."""
        return "energy" if self.on == "energy" else "msp"

    @property
    def gap_limit(self) -> float | None:
        """The margin, if it bounds MCD itself; with `hinge` it bounds pairs, with other settings another sum."""
        bounds_mcd = (self.variant, self.reduction, self.on, self.focus) == ("margin", "mean", "confidence", 1)
        return self.margin if bounds_mcd else None

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        outlier_exposed = cross_entropy(logits_in, labels) + self.weight * outlier_exposure(logits_out)
        quantity = QUANTITIES[self.on]
        return outlier_exposed + self.margin_weight * self.penalty(quantity(logits_in), quantity(logits_out))

    def penalty(self, s_in: Tensor, s_out: Tensor) -> Tensor:
        """The term W of this variant, from the confidences, energies or log-odds of the images."""
        if self.focus < 1:
            s_in, s_out = lowest(s_in, self.focus), -lowest(-s_out, self.focus)
        margin = self.m
        if self.on != "confidence":
            s_in, s_out, margin = s_in / self.m, s_out / self.m, 1.0
        if self.variant == "hinge":
            return hinge_penalty(s_in, s_out, margin)
        if self.variant == "unbounded":
            return -mcd(s_in, s_out, self.reduction)
        return macs_penalty(s_in, s_out, margin, self.reduction)


def lowest(values: Tensor, share: float) -> Tensor:
    """The lowest share of the values, at least one of them if there are any."""
    count = min(len(values), max(1, round(share * len(values))))
    return values.topk(count, largest=False).values
