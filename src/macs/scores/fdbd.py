"""fDBD: how far the features lie from the boundaries of their class, relative to their distance from the mean.

    d_k = (z_c - z_k) / ||w_c - w_k||        distance to the boundary between the predicted class c and class k
    confidence(x) = 1 / (K - 1) * sum_{k != c} d_k / ||h - mu||        in [0, inf)

w_k are the rows of the last layer, mu is the mean feature of ID training images.

Liu, Qin: Fast Decision Boundary based Out-of-Distribution Detector, ICML 2024. It has no settings.

It needs features, the last layer and training images without labels, and keeps K^2 + D numbers. Per image it takes K
divisions and a norm of D features: next to nothing, but with 20,000 classes the K^2 numbers are 1.6 GB. Two classes
with equal weights have no boundary, and it refuses them. Features that are at the mean itself, as those of a network
that was hardly trained, get a large confidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from macs.core.errors import MacsError
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import SMALLEST, mean_feature


@score("fdbd")
@dataclass
class FDBD(Score):
    reads = "features"
    fitted_to = "training images"
    uses_head = True
    centre: Tensor = field(init=False)  # D, mu
    nearness: Tensor = field(init=False)  # K x K, 1 / ||w_c - w_k||; 0 between a class and itself

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        weight = known.weight.cpu().double()  # not every GPU has float64
        apart = torch.cdist(weight, weight, compute_mode="donot_use_mm_for_euclid_dist")
        apart.fill_diagonal_(torch.inf)
        if not (apart > 0).all():
            first, second = (apart == 0).nonzero()[0].tolist()
            raise MacsError(
                f"FDBD measures distances to the boundaries between classes, but classes {first} and {second} have "
                "equal weights in the last layer, so there is none; use another score."
            )
        return {"centre": mean_feature(known.features), "nearness": (1 / apart).to(known.weight)}

    def confidence(self, outputs: Outputs) -> Tensor:
        largest, answers = outputs.logits.max(1, keepdim=True)
        others = self.nearness.shape[1] - 1
        distances = ((largest - outputs.logits) * self.nearness[answers[:, 0]]).sum(1)
        from_centre: Tensor = (outputs.features - self.centre).norm(dim=1)
        return distances / others / from_centre.clamp(min=SMALLEST)
