"""NECO: the share of the features, by norm, that lies in the principal space of training images.

    s = (h - mu) / sigma                                 standardised, feature by feature
    confidence(x) = ||P^T s|| / ||s||                    in [0, 1]
    confidence(x) = ||P^T s|| / ||s|| * max_k z_k        for transformers, in (-inf, inf)

mu and sigma are the mean and standard deviation of each feature over ID training images; the columns of P are the
`dimensions` eigenvectors of the covariance of s with the largest eigenvalues. In a network that was trained long
enough, the features of ID images lie in a space of few dimensions (neural collapse), and those of OOD images do not.

Ben Ammar, Belkhir, Popescu, Manzanera, Franchi: NECO: NEural Collapse Based Out-of-distribution detection, ICLR 2024.
100 dimensions are theirs, for 512 features or more; of fewer than 200 features we take half, as otherwise little would
be left outside. They multiply by the largest logit for transformers and not for ResNets. `by_logit` says whether to; by
default it is done if the features have both signs, as those of a transformer, which is our rule.

It needs features and training images without labels, and keeps D (d + 2) numbers for d dimensions. Per image it takes D
d multiply-adds. It refuses training images that have nothing outside of the d dimensions, as fewer than d + 2 images
have. A network that was trained briefly shows no collapse. If the largest logit is negative, the product turns the
order around: it warns if that is so for more than 1% of the training images.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._score import SIGNED
from macs.scores._statistics import SMALLEST

MOST = 100  # dimensions
CONSTANT = 1e-7  # a smaller spread, relative to the mean, is the rounding of float32
NEGATIVE = 0.01  # share of images whose largest logit is negative that a few odd ones explain
FLAT = 1e-12  # share of the variance outside of the principal space; less is rounding


@score("neco")
@dataclass
class NECO(Score):
    reads = "features"
    fitted_to = "training images"
    dimensions: Annotated[int | None, Span(1, 10**9)] = None
    by_logit: bool | None = None
    centre: Tensor = field(init=False)  # D, mu
    scale: Tensor = field(init=False)  # D, 1 / sigma
    axes: Tensor = field(init=False)  # D x d, P
    logit: Tensor = field(init=False)  # 1 if the ratio is multiplied by the largest logit, else 0

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        features = known.features.cpu().double()  # not every GPU has float64
        images, count = features.shape
        inside = min(MOST, max(1, count // 2)) if self.dimensions is None else self.dimensions
        spread, centre = torch.std_mean(features, 0, correction=0)
        scale = 1 / spread.where(spread > CONSTANT * centre.abs(), 1)  # a constant feature is only centred
        points = (features - centre) * scale
        variances, axes = torch.linalg.eigh(points.T @ points)  # eigenvalues ascend
        if variances[: max(0, count - inside)].sum() <= FLAT * variances.sum():
            raise MacsError(
                f"NECO finds nothing outside of {inside} dimensions in {images} training images of {count} features; "
                "give more images, or fewer dimensions."
            )
        by_logit = known.negative > SIGNED if self.by_logit is None else self.by_logit
        if by_logit and (share := float((known.logits.amax(1) < 0).float().mean())) > NEGATIVE:
            warn(
                f"NECO multiplies by the largest logit, which has to be positive, but that of {share:.0%} of the "
                "training images is negative; it may fail, and by_logit=False does without."
            )
        learnt = {"centre": centre, "scale": scale, "axes": axes[:, count - inside :], "logit": torch.tensor(by_logit)}
        return {name: tensor.to(known.features) for name, tensor in learnt.items()}

    def confidence(self, outputs: Outputs) -> Tensor:
        points = (outputs.features - self.centre) * self.scale
        ratio: Tensor = (points @ self.axes).norm(dim=1) / points.norm(dim=1).clamp(min=SMALLEST)
        largest = outputs.logits.amax(1)
        return ratio * largest.where(self.logit > 0, torch.ones_like(largest))
