"""MixOE: mix ID images with outliers and let the confidence fall with the outlier's share.

    L = CE(f(x), y) + beta * [ lam * CE(f(mixed), y) + (1 - lam) * CE(f(mixed), uniform) ],   lam ~ Beta(alpha, alpha)

    mixup    mixed = lam * x + (1 - lam) * o
    cutmix   mixed = x with a patch of o; lam is the share of x that is left

The bracket is the cross-entropy to the soft target lam * onehot(y) + (1 - lam) / K. Each outlier is mixed with one
ID image. ID and mixed images pass through the network separately, as in the authors' code, so that batch norm sees each
kind alone; `joint` passes them together.

Zhang, Inkawhich, Linderman, Chen, Li: Mixture Outlier Exposure, WACV 2023.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from macs.core.settings import Span, Weight
from macs.losses import outlier_exposure
from macs.methods import Batch, Method, Step, forward_together, method


@method("mixoe")
@dataclass(frozen=True)
class MixtureOutlierExposure(Method):
    mix: Literal["mixup", "cutmix"] = "mixup"
    beta: Weight = 5.0
    alpha: Annotated[float | None, Span(0.001, 1000)] = None  # the authors' 1 for mixup, 2 for cutmix
    joint: bool = False

    changes_pixels = True

    def step(self, net: nn.Module, batch: Batch) -> Step:
        partner = torch.arange(len(batch.outliers), device=batch.labels.device) % len(batch.images)
        alpha = self.alpha if self.alpha is not None else {"mixup": 1.0, "cutmix": 2.0}[self.mix]
        drawn = torch.distributions.Beta(alpha, alpha).sample()
        lam = batch.processes.common(drawn.to(batch.images.device)).item()
        if self.mix == "mixup":
            mixed = mixup(batch.images[partner], batch.outliers, lam)
        else:
            centre = torch.tensor([int(torch.randint(edge, ())) for edge in batch.images.shape[-2:]])
            y, x = batch.processes.common(centre.to(batch.images.device)).tolist()
            mixed, lam = cutmix(batch.images[partner], batch.outliers, lam, y, x)
        if self.joint:
            logits_in, logits_mixed = forward_together(net, batch.images, mixed)
        else:
            logits_in, logits_mixed = net(batch.images).float(), net(mixed).float()
        logits_in, logits_mixed = batch.of_all_images(logits_in), batch.of_all_outliers(logits_mixed)
        towards_class = cross_entropy(logits_mixed, batch.of_all_outliers(batch.labels[partner]))
        soft = lam * towards_class + (1 - lam) * outlier_exposure(logits_mixed)
        known = cross_entropy(logits_in, batch.all_labels)
        return Step(known + self.beta * soft, logits_in, logits_mixed)


def mixup(images: Tensor, outliers: Tensor, lam: float) -> Tensor:
    return lam * images + (1 - lam) * outliers


def cutmix(images: Tensor, outliers: Tensor, lam: float, y: int, x: int) -> tuple[Tensor, float]:
    """Paste a patch of every outlier around (x, y), and return lam as the share of the image that is left.

    That share is larger than the given lam if the border cuts the patch off.
    """
    height, width = images.shape[-2:]
    cut_height, cut_width = int(height * math.sqrt(1 - lam)), int(width * math.sqrt(1 - lam))
    top, bottom = max(y - cut_height // 2, 0), min(y + cut_height // 2, height)
    left, right = max(x - cut_width // 2, 0), min(x + cut_width // 2, width)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = outliers[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)
