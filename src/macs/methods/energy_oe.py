"""Energy as the released code of MaCS runs it: with outlier exposure, fixed margins, and scored by MSP.

    L = CE(f(x), y) + weight * (mean max(0, E(x) - m_in)^2 + mean max(0, m_out - E(o))^2)
        + oe_weight * CE(f(o), uniform)

with E = -logsumexp(z), m_in = -25, m_out = -7. It stands behind the Energy rows that the paper prints; the method of
Energy's own authors is `energy`.
"""

from dataclasses import dataclass

from torch import Tensor

from macs.core.settings import Weight
from macs.losses import outlier_exposure
from macs.methods import method
from macs.methods.energy import EnergyBounded, Margin


@method("energy-oe")
@dataclass(frozen=True)
class EnergyWithExposure(EnergyBounded):
    m_in: Margin = -25.0
    m_out: Margin = -7.0
    oe_weight: Weight = 0.5

    score = "msp"

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        return super().loss(logits_in, labels, logits_out) + self.oe_weight * outlier_exposure(logits_out)
