"""SHE: the inner product of the features with the mean of their predicted class, a simplified Hopfield energy.

    confidence(x) = h . mu_c        in (-inf, inf)

mu_c is the mean feature of the ID training images of class c that the network classifies *correctly*, c the prediction
for x.

Zhang, Fu, Chen, Du, Li, Wang, Liu, Han, Zhang: Out-of-Distribution Detection based on In-Distribution Data Patterns
Memorization with Modern Hopfield Energy, ICLR 2023. It has no settings.

It needs features and labelled training images, and keeps K D numbers. Per image it takes D multiply-adds. The product
grows with the norm of the features, so that it fails where OOD images have large features; on features of both signs,
whose products cancel, it warns. A class without a correctly classified image gets the mean of all, with a warning.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import means_of_answers


@score("she")
@dataclass
class SHE(Score):
    reads = "features"
    fitted_to = "training images"
    labelled = True
    if_signed = "warn"
    means: Tensor = field(init=False)  # K x D

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        answers = known.logits.argmax(1)
        correct = answers == known.labels
        features, answers = known.features[correct], answers[correct]
        return {"means": means_of_answers(features, answers, known.logits.shape[1], "SHE", "classified correctly")}

    def confidence(self, outputs: Outputs) -> Tensor:
        return (outputs.features * self.means[outputs.logits.argmax(1)]).sum(1)
