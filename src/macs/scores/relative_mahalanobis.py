"""Relative Mahalanobis: how much nearer the features lie to a class than to the training images as a whole.

    confidence(x) = -min_c [ MD_c(x) - MD_0(x) ]        in (-inf, inf)

MD_c is the squared Mahalanobis distance to class c (see mahalanobis.py), MD_0 that to one Gaussian with the mean and
covariance of all training images, which takes away what an image shares with no class in particular.

Ren, Fort, Liu, Roy, Padhy, Lakshminarayanan: A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection,
2021. It has no settings.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from macs.scores import Known, score
from macs.scores._gaussians import fit_gaussians
from macs.scores.mahalanobis import Mahalanobis


@score("relative-mahalanobis")
@dataclass(eq=False)
class RelativeMahalanobis(Mahalanobis):
    def learn(self, known: Known) -> None:
        super().learn(known)
        self.background = fit_gaussians(known.features, torch.zeros(len(known), dtype=torch.int64))

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        return super().from_features(logits, features) + self.background.squared_distances(features)[:, 0]
