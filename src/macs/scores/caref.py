"""CARef: how far the features lie from the mean of their predicted class, relative to their size.

    confidence(x) = -||h - mu_c||_1 / ||h||_1        in (-inf, 0]

mu_c is the mean feature of the ID training images that the network *predicts* as class c, the prediction for x.

Ling, Chang, Zhao, Zhao, Chow, Deng: CADRef: Robust Out-of-Distribution Detection via Class-Aware Decoupled Relative
Feature Leveraging, CVPR 2025. It has no settings. Their CADRef adds an energy to parts of this sum, and is not here.

It needs features and training images without labels, and keeps K D numbers. Per image it takes 2 D additions. A class
that no training image is predicted as gets the mean of all, with a warning. The nearest mean is not looked for, so that
a wrong prediction costs ID images confidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import SMALLEST, means_of_answers


@score("caref")
@dataclass
class CARef(Score):
    reads = "features"
    fitted_to = "training images"
    means: Tensor = field(init=False)  # K x D

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        answers = known.logits.argmax(1)
        return {"means": means_of_answers(known.features, answers, known.logits.shape[1], "CARef", "predicted as such")}

    def confidence(self, outputs: Outputs) -> Tensor:
        away = (outputs.features - self.means[outputs.logits.argmax(1)]).abs().sum(1)
        return -away / outputs.features.abs().sum(1).clamp(min=SMALLEST)
