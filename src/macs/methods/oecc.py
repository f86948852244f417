"""OECC: keep the confidence on ID images near the accuracy, and the prediction on outliers uniform.

    L = CE(f(x), y) + weight_in * sum_i (max_k p_k(x_i) - A)^2 + weight_out * sum_j ||p(o_j) - 1/K||_1

A is the classifier's accuracy on its training images, so that its confidence tells how often it is right. By default it
is measured on the first training batch under the starting network; the authors give the figure by hand, for example
0.9486 on CIFAR-10.

The sums run over the batch, as in the authors' code: other batch sizes then need other weights. With
`reduction="mean"` both terms are means; to get the same loss on batches of N_in images and N_out outliers, multiply the
weights by N_in and N_out.

Papadopoulos, Rajati, Shaikh, Wang: Outlier Exposure with Confidence Control for Out-of-Distribution Detection,
Neurocomputing 2021.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from macs.core.settings import Span, Weight
from macs.losses import confidence
from macs.methods import Batch, Method, method


@method("oecc")
@dataclass(frozen=True)
class ConfidenceControl(Method):
    weight_in: Weight = 0.07
    weight_out: Weight = 0.05
    accuracy: Annotated[float | None, Span(0, 1)] = None
    reduction: Literal["sum", "mean"] = "sum"

    @torch.no_grad()
    def prepare(self, net: nn.Module, batch: Batch) -> Self:
        if self.accuracy is not None:
            return self
        was_training = net.training
        net.eval()
        correct = (net(batch.images).argmax(1) == batch.labels).float()
        net.train(was_training)
        return replace(self, accuracy=batch.of_all_images(correct).mean().item())

    def loss(self, logits_in: Tensor, labels: Tensor, logits_out: Tensor) -> Tensor:
        if self.accuracy is None:
            raise TypeError("the accuracy of OECC is not set: call prepare() first")
        excess_in = (confidence(logits_in) - self.accuracy).square()
        excess_out = (logits_out.softmax(1) - 1 / logits_out.shape[1]).abs().sum(1)
        if self.reduction == "mean":
            excess_in, excess_out = excess_in / len(logits_in), excess_out / max(1, len(logits_out))
        controlled = self.weight_in * excess_in.sum() + self.weight_out * excess_out.sum()
        return cross_entropy(logits_in, labels) + controlled
