"""Joint energy of a multi-label classifier: the evidence for all labels together.

    confidence(x) = sum_k log(1 + exp z_k)        in (0, inf)

for K logits of independent sigmoids; each term is the negative free energy of one label. An input that has several of
the labels gets more than one that has a single label, where the largest logit would stay the same. A softmax fixes only
the differences of its logits, so for a classifier with one label per input use energy.

Wang, Liu, Bocchieri, Li: Can Multi-Label Classification Networks Know What They Don't Know?, NeurIPS 2021.
"""

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import softplus

from macs.inference import Outputs
from macs.scores import Score, score


@score("joint-energy")
class JointEnergy(Score):
    multilabel: ClassVar[bool] = True

    def confidence(self, outputs: Outputs) -> Tensor:
        return softplus(outputs.logits).sum(1)
