"""Statistics of training features that several scores share: means, Gaussians per class, and a bank of features."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from macs.core.console import warn
from macs.core.errors import MacsError

SMALLEST = 1e-12  # norms that are divided by; torch's `normalize` has the same limit


def mean_feature(features: Tensor) -> Tensor:
    """mu = 1/N * sum_i f_i, summed in float64."""
    return features.cpu().double().mean(0).to(features)  # not every GPU has float64


def class_means(features: Tensor, classes: Tensor, count: int) -> Tensor:
    """mu_c, the mean of each of `count` classes, in float64 on the CPU; the mean of all for a class without images."""
    wide, member = features.cpu().double(), classes.cpu()
    sums = wide.new_zeros(count, wide.shape[1]).index_add_(0, member, wide)
    sizes = member.bincount(minlength=count)[:, None]
    return (sums / sizes.clamp(min=1)).where(sizes > 0, wide.mean(0))


def means_of_answers(features: Tensor, answers: Tensor, count: int, score: str, which: str) -> Tensor:
    """The mean features of the images with each of the `count` answers, with a warning if an answer does not occur.

    `which` says in words which images these are.
    """
    if not len(answers):
        raise MacsError(f"{score} finds no training image that is {which}; give others, or use another score.")
    if missing := count - len(torch.unique(answers)):
        warn(
            f"{score} finds no training image that is {which} for {missing} of {count} classes, and takes the mean of "
            "all others for them; give more images."
        )
    return class_means(features, answers, count).to(features)


# Directions whose variance is a smaller share of the largest one are left out, as in a pseudo-inverse: there, the
# rounding of float32 features is larger than their spread.
FLAT = 1e-12


class Gaussians(NamedTuple):
    """One Gaussian per class with a common covariance, by which both Mahalanobis scores measure distances.

    They are computed after whitening, S^-1 = A A^T, of centred features, where rounding is smallest.
    """

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


SEED = 0
PRODUCTS = 2**23  # of features with a bank at a time: 32 MB, however many features there are


def drawn(features: Tensor, count: int) -> Tensor:
    """Draw the positions of `count` of N features at random, in ascending order; all if there are no more."""
    if count >= len(features):
        return torch.arange(len(features), device=features.device)
    chosen = np.random.default_rng(SEED).choice(len(features), count, replace=False)
    return torch.from_numpy(np.sort(chosen)).to(features.device)


def compared(work: Callable[[Tensor], Tensor], features: Tensor, bank: Tensor) -> Tensor:
    """One number for each of N features from `work`, which multiplies what it gets with the whole bank.

    It gets a part of the features at a time, except in an exported graph, whose batches the runtime chooses.
    """
    rows = max(1, PRODUCTS // max(1, len(bank)))
    if torch.compiler.is_exporting() or len(features) <= rows:
        return work(features)
    parts = math.ceil(len(features) / rows)
    return torch.cat([work(part) for part in features.tensor_split(parts)])
