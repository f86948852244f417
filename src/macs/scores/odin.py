"""ODIN: the softmax at a high temperature, after a small step of the pixels towards the network's own prediction.

    S_k(x; T) = exp(z_k / T) / sum_j exp(z_j / T)                                               (Liang et al., Eq. 1)
    x' = x - eps * sign(-grad_x log S_y(x; T)),    y = argmax_k z_k                             (Liang et al., Eq. 2)
    confidence(x) = max_k S_k(x'; T)        in [1/K, 1]

Liang, Li, Srikant: Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks, ICLR 2018.
T = 1000 is theirs throughout; eps = 0.0014 is theirs for a DenseNet on CIFAR-10 and most OOD sets. They tune eps on OOD
images for each network and OOD set (for their Wide ResNet on CIFAR-10 it is 0 to 0.0014); we do not.

The step is eps for pixels in [0, 1], in every channel. So is theirs, which moves normalised inputs by eps / std. As in
their code, pixels may leave [0, 1] by eps. It costs one backward and two forward passes, always in float32: in bf16 so
small a step would be lost in rounding.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from macs import nets
from macs.core.settings import Span
from macs.inference import GRADIENT_ROWS, Outputs, tracked
from macs.scores import Score, score


@score("odin")
@dataclass
class ODIN(Score):
    reads = "pixels"
    temperature: Annotated[float, Span(0, 10**9, open="least")] = 1000
    epsilon: Annotated[float, Span(0, 1)] = 0.0014

    def confidence(self, outputs: Outputs) -> Tensor:
        return torch.cat([self._confidence(outputs.net, part) for part in outputs.pixels.split(GRADIENT_ROWS)])

    def _confidence(self, net: nn.Module, pixels: Tensor) -> Tensor:
        moved = pixels + self.epsilon * self._slope(net, pixels).sign()
        with torch.no_grad():
            return self._log_softmax(net, moved).exp()

    def _slope(self, net: nn.Module, pixels: Tensor) -> Tensor:
        """grad_x log S_y(x; T)."""
        with tracked(pixels) as inputs:
            return torch.autograd.grad(self._log_softmax(net, inputs).sum(), inputs)[0]

    def _log_softmax(self, net: nn.Module, pixels: Tensor) -> Tensor:
        """log max_k S_k(x; T), one per image."""
        return (nets.logits_of(net, pixels) / self.temperature).log_softmax(1).amax(1)
