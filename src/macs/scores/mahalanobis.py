"""Mahalanobis: the distance of the features to the nearest class, in units of the spread within classes.

    confidence(x) = max_c -(f - mu_c)^T S^-1 (f - mu_c)        in (-inf, 0]                    (Lee et al., Eq. 1 and 2)

f are the features before the last layer, mu_c the mean of class c and S the covariance within classes, both of ID
training images.

Lee, Lee, Lee, Shin: A Simple Unified Framework for Detecting Out-of-Distribution Samples and Adversarial Attacks,
NeurIPS 2018. We leave out their perturbed inputs and weighted sum over layers, which are tuned on OOD images.

With `normalise`, which is the default of `normalised-mahalanobis` (MDS++), f / ||f|| takes the place of f, in fitting
and in scoring: the norm of the features, which differs between classes, no longer counts as distance.

Müller, Hein: Mahalanobis++: Improving OOD Detection via Feature Normalization, ICML 2025.

It needs features and labels, and more training images than features: with fewer it warns, and may rank images worse
than chance. Per image it takes D (R + 1) + R C multiply-adds for D features, C classes and R <= D directions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn.functional import normalize

from macs.core.console import warn
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import Gaussians, fit_gaussians


@score("mahalanobis")
@dataclass
class Mahalanobis(Score):
    reads = "features"
    fitted_to = "training images"
    uses_logits = False
    labelled = True
    normalise: bool = False
    centre: Tensor = field(init=False)
    whiten: Tensor = field(init=False)
    means: Tensor = field(init=False)

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        assert known.labels is not None  # since it is `labelled`
        images, features = known.features.shape
        if images <= features:
            warn(
                f"{type(self).__name__} needs more training images than the network has features, but there are "
                f"{images} for {features}, so it may rank images worse than chance; give more, or take knn."
            )
        return fit_gaussians(self.measured(known.features), known.labels)._asdict()

    def measured(self, features: Tensor) -> Tensor:
        """The features between which distances are measured."""
        return normalize(features) if self.normalise else features

    def confidence(self, outputs: Outputs) -> Tensor:
        classes = Gaussians(self.centre, self.whiten, self.means)
        return -classes.squared_distances(self.measured(outputs.features)).amin(1)


@score("normalised-mahalanobis")
@dataclass
class NormalisedMahalanobis(Mahalanobis):
    normalise: bool = True
