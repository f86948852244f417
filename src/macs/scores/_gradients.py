"""Gradients with respect to the pixels, for scores that are measured but not put into a detector."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

ROWS = 64  # images per pass: a gradient needs the activations of all layers at once


@contextmanager
def tracked(pixels: Tensor) -> Iterator[Tensor]:
    """A copy of the pixels by which outputs can be differentiated, even within torch's inference mode.

    All images at once: in evaluation mode, outputs do not depend on other images.
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield pixels.clone().requires_grad_()
