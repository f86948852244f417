"""InParts: a network that takes a batch in several parts, so that memory holds the activations of one part only."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class InParts(nn.Module):
    """The same logits as from the whole batch, so that any loss of them can be minimised; batch norm sees the parts.

    The forward pass keeps nothing but the pixels, and the backward pass runs the network again, part by part. Part i of
    n is every n-th image from the i-th on, so that each part has its share of ID images and of outliers.
    """

    def __init__(self, net: nn.Module, parts: int) -> None:
        super().__init__()
        self.net, self.parts = net, parts

    def forward(self, pixels: Tensor) -> Tensor:
        parts = [pixels[i :: self.parts] for i in range(min(self.parts, len(pixels)))]
        order = torch.cat([torch.arange(len(pixels))[i :: self.parts] for i in range(len(parts))])
        logits = [checkpoint(self.net, part, use_reentrant=False, context_fn=self._contexts) for part in parts]
        return torch.cat(logits)[order.argsort().to(pixels.device)]

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Contexts of the forward pass and of its repetition."""
        return nullcontext(), self._statistics_kept()

    @contextmanager
    def _statistics_kept(self) -> Iterator[None]:
        """Batch norm without another update of its running statistics."""
        norms: list[Any] = [module for module in self.modules() if hasattr(module, "num_batches_tracked")]
        before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
        try:
            for norm in norms:
                norm.momentum, norm.num_batches_tracked = 0.0, None
            yield
        finally:
            for norm, (momentum, batches) in zip(norms, before, strict=True):
                norm.momentum, norm.num_batches_tracked = momentum, batches
