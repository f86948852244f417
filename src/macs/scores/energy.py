"""Negative free energy: a smooth maximum of the logits.

    confidence(x) = -E(x) = log sum_k exp(z_k)        in (-inf, inf), temperature 1

Liu, Wang, Owens, Li: Energy-based Out-of-distribution Detection, NeurIPS 2020, Eq. 4-5; the sign is theirs.
"""

from torch import Tensor

from macs.inference import Outputs
from macs.losses import energy
from macs.scores import Score, score


@score("energy")
class Energy(Score):
    def confidence(self, outputs: Outputs) -> Tensor:
        return -energy(outputs.logits)
