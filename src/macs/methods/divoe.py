"""DivOE: make half of the outliers harder, then expose the network to all of them.

    o' = argmax_{|o' - o| <= eps} CE(f(o'), uniform)          by projected gradient steps on the pixels
    L  = CE(f(x), y) + weight * CE(f(o' and o), uniform)

The first `share` of each outlier batch starts at a uniformly random point of the eps ball and takes `steps` steps of
`step_size` along the sign of the gradient, projected to the ball and to pixels in [0, 1]. The network is in evaluation
mode meanwhile.

Zhu, Geng, Yao, Liu, Niu, Sugiyama, Han: Diversified Outlier Exposure for Out-of-Distribution Detection via Informative
Extrapolation, NeurIPS 2023.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from macs.core.settings import Span, Weight
from macs.losses import outlier_exposure
from macs.methods import Batch, Method, Step, method


@method("divoe")
@dataclass(frozen=True)
class DiversifiedOutlierExposure(Method):
    weight: Weight = 0.5
    eps: Annotated[float, Span(0, 1)] = 0.05
    steps: Annotated[int, Span(0, 1000)] = 5
    step_size: Annotated[float | None, Span(0, 1)] = None  # the authors' eps / 4
    share: Annotated[float, Span(0, 1)] = 0.5

    changes_pixels = True

    def step(self, net: nn.Module, batch: Batch) -> Step:
        processes, whole = batch.processes, int(batch.outlier_count * self.share)
        count = len(range(whole)[processes.part])  # those of this process
        start = processes.common(noise(batch.outliers, whole, self.eps))[processes.part]
        harder = self.extrapolate(net, batch.outliers[:count], start)
        return super().step(net, replace(batch, outliers=torch.cat([harder, batch.outliers[count:]])))

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        return cross_entropy(logits_in, labels) + self.weight * outlier_exposure(logits_out)

    def extrapolate(self, net: nn.Module, outliers: Tensor, start: Tensor) -> Tensor:
        """The outliers moved inside their eps ball to where the network's prediction is farthest from uniform.

        `start` is the initial shift of each pixel.
        """
        size = self.eps / 4 if self.step_size is None else self.step_size
        moved = (outliers + start).clamp(0, 1)
        was_training = net.training
        net.eval()
        for _ in range(self.steps):
            moved.requires_grad_(True)
            # The gradient of the pixels alone: those of the parameters are not computed.
            (slope,) = torch.autograd.grad(outlier_exposure(net(moved).float()), moved)
            moved = moved.detach() + size * slope.sign()
            moved = torch.minimum(torch.maximum(moved, outliers - self.eps), outliers + self.eps).clamp(0, 1)
        net.train(was_training)
        return moved


def noise(images: Tensor, count: int, eps: float) -> Tensor:
    """Uniformly random points of the eps ball for `count` images of this size and memory layout."""
    last = images.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    shape = (count, *images.shape[1:])
    return torch.empty(shape, device=images.device, memory_format=layout).uniform_(-eps, eps)
