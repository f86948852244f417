"""NNGuide: the energy, multiplied by the similarity to training images that the network is sure of.

    E(x) = log sum_k exp(z_k),    u = h / ||h||
    confidence(x) = E(x) * 1/k * sum of the k largest u . (E(x_i) u_i) over the bank        in (-inf, inf)

The bank holds unit features u_i of ID training images, drawn at random, each multiplied by its energy.

Park, Jung, Teoh: Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023. k = 100 and a bank of 1% are
theirs for ImageNet, whose 1% are 12,812 images. Of fewer images we keep at least 10 k: 1% of 10,000 would be 100, and
the 100 nearest of 100 are all of them.

It needs features and training images without labels. It keeps B D numbers for a bank of B images, and takes as many
multiply-adds per image. Energies that are negative turn the order around, since two of them have a positive product: if
more than 1% of the training images have such an energy, it warns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from torch import Tensor
from torch.nn.functional import normalize

from macs.core.console import warn
from macs.core.settings import Span
from macs.inference import Outputs
from macs.scores import Known, Score, score
from macs.scores._statistics import compared, drawn

SHARE = 0.01  # of the training images in the bank
TIMES = 10  # as many as k, at least
NEGATIVE = 0.01  # share of negative energies that a few odd images explain


@score("nnguide")
@dataclass
class NNGuide(Score):
    reads = "features"
    fitted_to = "training images"
    k: Annotated[int, Span(1, 10**9)] = 100
    bank: Annotated[int | None, Span(0, 10**9)] = None  # how many features to keep; 0: all; None: 1%, at least 10 k
    vectors: Tensor = field(init=False)  # B x D, E(x_i) u_i

    def learn(self, known: Known) -> Mapping[str, Tensor]:
        energies = known.logits.logsumexp(1)
        if (share := float((energies < 0).float().mean())) > NEGATIVE:
            warn(
                f"NNGuide multiplies energies, which have to be positive, but those of {share:.0%} of the training "
                "images are negative; it may fail."
            )
        chosen = drawn(known.features, self.bank_size(len(known)))
        return {"vectors": normalize(known.features[chosen]) * energies[chosen, None]}

    def bank_size(self, images: int) -> int:
        """The number of features to keep, of so many training images."""
        if self.bank is None:
            return max(round(SHARE * images), TIMES * self.k)
        return self.bank or images

    def confidence(self, outputs: Outputs) -> Tensor:
        return outputs.logits.logsumexp(1) * compared(self._similarity, outputs.features, self.vectors)

    def _similarity(self, features: Tensor) -> Tensor:
        k = min(self.k, len(self.vectors))
        return (normalize(features) @ self.vectors.T).topk(k, sorted=False).values.mean(1)
