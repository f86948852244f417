"""Maximum concept matching: the largest probability of a zero-shot classifier, whose logits are cosines.

    confidence(x) = max_k softmax(z / T)_k,        z_k = cos(image x, words of class k)

With T = 1, the default and theirs, the softmax of cosines is nearly flat, but the order of the images is what counts.
For any other network it is `msp` at another temperature, so `--score all` and `auto` leave it out there.

It needs the logits alone, stores nothing, and costs what `msp` costs. It fails where an unknown image looks like the
words of one class more than the classes look like each other.

Ming, Cai, Gu, Sun, Li, Li: Delving into Out-of-Distribution Detection with Vision-Language Representations, NeurIPS
2022.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from macs.core.settings import Span
from macs.inference import Outputs
from macs.losses import confidence as max_probability
from macs.scores import Score, score


@score("mcm")
@dataclass
class MCM(Score):
    temperature: Annotated[float, Span(0, 10**6, open="least")] = 1.0

    zero_shot = True

    def confidence(self, outputs: Outputs) -> Tensor:
        return max_probability(outputs.logits / self.temperature)
