"""A network in which every parameter matters: fresh ones have batch norms that do nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from macs import nets


@pytest.fixture
def shaken() -> Callable[..., nets.Net]:
    """`shaken(name, ...)` builds a float64 network in evaluation mode whose batch norms are random."""

    def build(name: str, classes: int = 5, seed: int = 0, **options: Any) -> nets.Net:
        torch.manual_seed(seed)
        net = nets.build(name, classes, **options).double().eval()
        assert isinstance(net, nets.Net)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                for tensor in (module.weight.data, module.running_var):
                    tensor.uniform_(0.5, 1.5)
                for tensor in (module.bias.data, module.running_mean):
                    tensor.normal_(0, 0.3)
        return net

    return build
