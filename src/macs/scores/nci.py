"""NCI: how well the centred features point along the weights of the predicted class, and how large the features are.

    confidence(x) = w_c . (h - mu) / ||h - mu|| + alpha ||h||_1        in (-inf, inf)

w_c is the row of the last layer for the predicted class c, mu the mean feature of ID training images. In a network that
was trained long enough, the centred features of a class point along its weights (neural collapse), and those of OOD
images are nearer to the origin.

Liu, Qin: Detecting Out-of-Distribution through the Lens of Neural Collapse, CVPR 2025. alpha = 0.0001 is the smallest
of their values; they choose between 0.0001 and 0.1 for each network on validation outliers, which we do not.

It needs features, the last layer and training images without labels, and keeps K D + D numbers. Per image it takes 3 D
multiply-adds. With a large alpha the norm decides alone, and it fails where OOD images have larger features than ID
images, as noise may. A network that was trained briefly shows no collapse.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from torch import Tensor
from torch.nn.functional import normalize

from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import mean_feature


@score("nci")
@dataclass
class NCI(Score):
    reads = "features"
    fitted_to = "training images"
    uses_head = True
    alpha: Annotated[float, Span(0, 10**9)] = 1e-4
    centre: Tensor = field(init=False)  # D, mu
    weight: Tensor = field(init=False)  # K x D

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        return {"centre": mean_feature(known.features), "weight": known.weight}

    def confidence(self, outputs: Outputs) -> Tensor:
        directions = normalize(outputs.features - self.centre)
        along = (self.weight[outputs.logits.argmax(1)] * directions).sum(1)
        return along + self.alpha * outputs.features.abs().sum(1)
