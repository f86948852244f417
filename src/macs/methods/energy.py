"""Energy: push the energies E = -logsumexp(z) of ID images below m_in and those of outliers above m_out.

    L = CE(f(x), y) + weight * (mean max(0, E(x) - m_in)^2 + mean max(0, m_out - E(o))^2)

The authors use m_in = -23 (CIFAR-10) or -27 (CIFAR-100) and m_out = -5, which fit their own classifiers. By
default the margins are the mean energies of the first training batch under the starting network.

Liu, Wang, Owens, Li: Energy-based Out-of-distribution Detection, NeurIPS 2020.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from macs.core.settings import Span, Weight
from macs.losses import energy, energy_margin
from macs.methods import Batch, Method, method

Margin = Annotated[float | None, Span(-1_000_000, 1_000_000)]


@method("energy")
@dataclass(frozen=True)
class EnergyBounded(Method):
    weight: Weight = 0.1
    m_in: Margin = None
    m_out: Margin = None

    score = "energy"

    @torch.no_grad()
    def prepare(self, net: nn.Module, batch: Batch) -> Self:
        if self.m_in is not None and self.m_out is not None:
            return self
        was_training = net.training
        net.eval()
        mean_in = batch.of_all_images(energy(net(batch.images).float())).mean().item()
        mean_out = batch.of_all_outliers(energy(net(batch.outliers).float())).mean().item()
        net.train(was_training)
        return replace(
            self,
            m_in=mean_in if self.m_in is None else self.m_in,
            m_out=mean_out if self.m_out is None else self.m_out,
        )

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        if self.m_in is None or self.m_out is None:
            raise TypeError("the margins of Energy are not set: call prepare() first")
        penalty = energy_margin(logits_in, logits_out, self.m_in, self.m_out)
        return cross_entropy(logits_in, labels) + self.weight * penalty
