"""Mahalanobis: how near the features lie to the nearest class, in units of the spread within classes.

    confidence(x) = max_c -(f - mu_c)^T S^-1 (f - mu_c)        in (-inf, 0]                    (Lee et al., Eq. 1 and 2)

f are the features before the last layer, mu_c the mean of class c and S the covariance within classes, both of ID
training images.

Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks,
NeurIPS 2018. Without their perturbed inputs and their weighted sum over layers, which are tuned on OOD images.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from macs.core.errors import MacsError
from macs.scores import FeatureScore, Known, score
from macs.scores._gaussians import fit_gaussians


@score("mahalanobis")
@dataclass(eq=False)
class Mahalanobis(FeatureScore):
    needs_training: ClassVar[bool] = True

    def learn(self, known: Known) -> None:
        if known.labels is None:
            raise MacsError(f"{type(self).__name__} is fitted class by class and the training images have no labels.")
        self.classes = fit_gaussians(known.features, known.labels)

    def from_features(self, logits: Tensor, features: Tensor) -> Tensor:
        return -self.classes.squared_distances(features).amin(1)
