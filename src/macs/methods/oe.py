"""Outlier Exposure: teach the network to be unsure about images that belong to no class.

    L = CE(f(x), y) + weight * CE(f(o), uniform)                                              (MaCS paper, Eq. 1)

Hendrycks, Mazeika, Dietterich: Deep Anomaly Detection with Outlier Exposure, ICLR 2019.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from macs.core.settings import Weight
from macs.losses import outlier_exposure
from macs.methods import Method, method


@method("oe")
@dataclass(frozen=True)
class OutlierExposure(Method):
    weight: Weight = 0.5

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        return cross_entropy(logits_in, labels) + self.weight * outlier_exposure(logits_out)
