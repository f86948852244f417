"""DenseNet against a second computation of it, from the state dict and by functional calls."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from macs import nets


def active(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    parts = ("running_mean", "running_var", "weight", "bias")
    mean, variance, weight, bias = (state[f"{name}.{part}"] for part in parts)
    return F.relu(F.batch_norm(x, mean, variance, weight, bias))


def recomputed(state: dict[str, Tensor], pixels: Tensor, layers: tuple[int, ...]) -> Tensor:
    mean, std = torch.tensor([125.3, 123.0, 113.9]).double() / 255, torch.tensor([63.0, 62.1, 66.7]).double() / 255
    x = (pixels - mean[:, None, None]) / std[:, None, None]
    x = F.conv2d(x, state["conv1.weight"], padding=1)
    for stage, count in enumerate(layers, start=1):
        if stage > 1:
            name = f"trans{stage - 1}"
            x = F.conv2d(active(state, f"{name}.bn", x), state[f"{name}.conv.weight"])
            x = torch.stack([x[:, :, i::2, j::2] for i in (0, 1) for j in (0, 1)]).mean(0)
        for i in range(count):
            name = f"dense{stage}.{i}"
            out = F.conv2d(active(state, f"{name}.bn1", x), state[f"{name}.conv1.weight"])
            out = F.conv2d(active(state, f"{name}.bn2", out), state[f"{name}.conv2.weight"], padding=1)
            x = torch.cat([out, x], dim=1)
    return F.linear(active(state, "bn", x).flatten(2).mean(2), state["fc.weight"], state["fc.bias"])


def test_logits_equal_the_definition(shaken: Callable[..., nets.Net]) -> None:
    net = shaken("densenet-121")
    pixels = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    assert torch.allclose(net(pixels), recomputed(net.state_dict(), pixels, (6, 12, 24, 16)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("depth", [121, 169, 201])
def test_the_name_counts_convolutions_and_the_last_layer(depth: int) -> None:
    with torch.device("meta"):
        net = nets.build(f"densenet-{depth}", classes=10)
    assert sum(isinstance(m, torch.nn.Conv2d | torch.nn.Linear) for m in net.modules()) == depth


def test_a_training_step_runs_backwards_through_the_operations_in_place() -> None:
    torch.manual_seed(0)
    net = nets.build("densenet-121", classes=2)
    net(torch.rand(2, 3, 16, 16)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
