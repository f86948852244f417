"""Relative Mahalanobis: how much closer the features are to a class than to the training images as a whole.

    confidence(x) = -min_c [ MD_c(x) - MD_0(x) ]        in (-inf, inf)

MD_c is the squared Mahalanobis distance to class c (see mahalanobis.py), MD_0 that to one Gaussian with the mean and
covariance of all training images, which removes what is common to all classes.

Ren, Fort, Liu, Roy, Padhy, Lakshminarayanan: A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection,
2021. With `normalise`, which is the default of `normalised-relative-mahalanobis` (RMDS++), unit features take the place
of the features in both distances, as in mahalanobis.py, where its paper, its needs and its failures are; it costs twice
as much.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from macs.core.errors import MacsError
from macs.inference import Outputs
from macs.scores import Known, score
from macs.scores._statistics import Gaussians, fit_gaussians
from macs.scores.mahalanobis import Mahalanobis


@score("relative-mahalanobis")
@dataclass
class RelativeMahalanobis(Mahalanobis):
    all_centre: Tensor = field(init=False)
    all_whiten: Tensor = field(init=False)
    all_means: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        if known.labels is not None and len(known.labels.unique()) < 2:
            raise MacsError(f"{type(self).__name__} compares classes with all rows; give labels of two or more.")
        everything = fit_gaussians(self.measured(known.features), torch.zeros(len(known), dtype=torch.int64))._asdict()
        return {**super().learn(known), **{f"all_{name}": tensor for name, tensor in everything.items()}}

    def confidence(self, outputs: Outputs) -> Tensor:
        everything = Gaussians(self.all_centre, self.all_whiten, self.all_means)
        return super().confidence(outputs) + everything.squared_distances(self.measured(outputs.features))[:, 0]


@score("normalised-relative-mahalanobis")
@dataclass
class NormalisedRelativeMahalanobis(RelativeMahalanobis):
    normalise: bool = True
