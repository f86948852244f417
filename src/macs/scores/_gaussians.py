"""One Gaussian per class with a common covariance, by which both Mahalanobis scores measure distances."""

from typing import NamedTuple

import torch
from torch import Tensor

from macs.core.errors import MacsError
from macs.scores._means import class_means

# Directions whose variance is a smaller share of the largest one are left out, as in a pseudo-inverse: there, the
# rounding of float32 features is larger than their spread.
FLAT = 1e-12


class Gaussians(NamedTuple):
    """Squared distances are computed after whitening, S^-1 = A A^T, of centred features, where rounding is smallest."""

    centre: Tensor  # D, mean of all features
    whiten: Tensor  # D x R, the matrix A
    means: Tensor  # C x R, of the classes, whitened

    def squared_distances(self, features: Tensor) -> Tensor:
        """(f - mu_c)^T S^-1 (f - mu_c) for N features and C classes, N x C."""
        points = (features - self.centre) @ self.whiten
        both = points.square().sum(1, keepdim=True) + self.means.square().sum(1)
        return (both - 2 * (points @ self.means.T)).clamp(min=0)


def fit_gaussians(features: Tensor, labels: Tensor) -> Gaussians:
    """mu_c, the mean of each class that occurs, and S = 1/N * sum_c sum_{i in c} (f_i - mu_c)(f_i - mu_c)^T.

    With fewer images than features S is singular, and distances are measured only in the directions in which training
    images differ.
    """
    wide = features.cpu().double()  # sums of squares, and not every GPU has float64
    classes, member = labels.cpu().unique(return_inverse=True)
    means = class_means(wide, member, len(classes))
    deviations = wide - means[member]
    variances, axes = torch.linalg.eigh(deviations.T @ deviations / len(wide))
    kept = variances > FLAT * variances[-1]
    if not kept.any():
        raise MacsError(
            f"{len(wide)} training images of {len(classes)} classes have no spread within classes; give more."
        )
    whiten = axes[:, kept] / variances[kept].sqrt()
    centre = wide.mean(0)
    return Gaussians(centre.to(features), whiten.to(features), ((means - centre) @ whiten).to(features))
