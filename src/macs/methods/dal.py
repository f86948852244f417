"""DAL: expose the network to the worst features near those of the outliers.

    L = CE(f(x), y) + weight * CE(W (h(o) + p) + b, uniform)

h are the features before the last layer, which has the weights W and b. The shift p of every outlier is found by a
search that starts at p ~ uniform(0, 1e-4) and takes `steps` steps on features that are held fixed,

    g = d/dp [ CE(W (h(o) + p) + b, uniform) - gamma * mean |p| ],     p <- p + strength * g / ||g||_2  per image,

where a gradient of zero moves nothing. gamma keeps mean |p|, over the features of all outliers, near rho. Every
training step updates it, with mean |p| as the last step of the search found it:

    gamma <- min(max(gamma - beta * (rho - mean |p|), 0), gamma_max)

The setting `gamma` is its initial value; a resumed run continues with the gamma that it had. As W (h + p) + b is
z + W p, only products with W are repeated, and training takes hardly longer than outlier exposure. Any network that
ends with a linear layer will do, also with a frozen backbone.

The defaults are the authors' for CIFAR-10; for CIFAR-100 their beta is 0.005. The steps limit mean |p| to steps *
strength / sqrt(D) in D dimensions, 0.88 in the 128 of a WRN-40-2. That is far below their rho of 10, so gamma falls to
0 in the first step and stays there. A rho below that bound makes gamma work.

Wang, Fang, Zhang, Liu, Li, Han: Learning to Augment Distributions for Out-of-Distribution Detection,
NeurIPS 2023.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from macs import nets
from macs.core.errors import MacsError
from macs.core.settings import Span, Weight
from macs.losses import outlier_exposure
from macs.methods import Batch, Method, Step, forward_together, method


@method("dal")
@dataclass(frozen=True)
class DistributionAugmentedLearning(Method):
    weight: Weight = 0.5
    strength: Annotated[float, Span(0, 1000)] = 1.0
    steps: Annotated[int, Span(1, 1000)] = 10
    rho: Annotated[float, Span(0, 1_000_000)] = 10.0
    beta: Annotated[float, Span(0, 1000)] = 0.01
    gamma: Annotated[float, Span(0, 1_000_000)] = 0.01
    gamma_max: Annotated[float, Span(0, 1_000_000)] = 10.0

    changes_pixels = False

    @torch.no_grad()
    def prepare(self, net: nn.Module, batch: Batch) -> Self:
        """Refuse a network in which something follows the last linear layer: W p would not be the change of z."""
        was_training = net.training
        net.eval()
        with nets.last_linear(net) as last:
            logits = net(batch.outliers[:1]).float()
        net.train(was_training)
        ends = [layer(inputs).float() for layer, inputs in last]
        # Half precision gives the last layer's own output only roughly.
        if not any(end.shape == logits.shape and torch.allclose(end, logits, rtol=0.05, atol=0.05) for end in ends):
            raise MacsError("dal moves the inputs of the last layer, so the network must end with a linear one.")
        return self

    def step(self, net: nn.Module, batch: Batch) -> Step:
        with nets.last_linear(net) as last:
            own_in, own_out = forward_together(net, batch.images, batch.outliers)
        weights = last[0][0].weight.float()
        start = torch.rand(batch.outlier_count, weights.shape[1], device=own_out.device)
        start = batch.processes.common(start)[batch.processes.part]
        shift, sizes = self.search(own_out.detach(), weights.detach(), 1e-4 * start)
        size = batch.of_all_outliers(sizes).mean().item()
        worst = batch.of_all_outliers(own_out + linear(shift, weights))
        logits_in, logits_out = batch.of_all_images(own_in), batch.of_all_outliers(own_out)
        loss = cross_entropy(logits_in, batch.all_labels) + self.weight * outlier_exposure(worst)
        gamma = min(max(self.gamma - self.beta * (self.rho - size), 0.0), self.gamma_max)
        return Step(loss, logits_in, logits_out, replace(self, gamma=gamma))

    def search(self, logits: Tensor, weights: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """The shift p of each outlier's features, searched from a first one, and mean |p| before the last step."""
        sizes = shift.new_zeros(len(shift))
        for _ in range(self.steps):
            shift.requires_grad_(True)
            sizes = shift.abs().mean(1)
            gain = outlier_exposure(logits + linear(shift, weights)) - self.gamma * sizes.mean()
            (slope,) = torch.autograd.grad(gain, shift)
            length = slope.norm(dim=1, keepdim=True)
            shift = shift.detach() + self.strength * torch.where(length > 0, slope / length, 0.0)
        return shift, sizes.detach()
