"""ResNet against a second computation of it, from the state dict and by functional calls."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from macs import nets


def normed(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    parts = ("running_mean", "running_var", "weight", "bias")
    mean, variance, weight, bias = (state[f"{name}.{part}"] for part in parts)
    return F.batch_norm(x, mean, variance, weight, bias)


def recomputed(state: dict[str, Tensor], pixels: Tensor, blocks: tuple[int, ...]) -> Tensor:
    mean, std = torch.tensor([125.3, 123.0, 113.9]).double() / 255, torch.tensor([63.0, 62.1, 66.7]).double() / 255
    x = (pixels - mean[:, None, None]) / std[:, None, None]
    x = F.relu(normed(state, "bn1", F.conv2d(x, state["conv1.weight"], padding=1)))
    for stage, count in enumerate(blocks, start=1):
        for i in range(count):
            name, stride = f"layer{stage}.{i}", 2 if i == 0 and stage > 1 else 1
            out = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = F.conv2d(F.relu(normed(state, f"{name}.bn1", out)), state[f"{name}.conv2.weight"], padding=1)
            if stride == 2:
                x = normed(state, f"{name}.shortcut.1", F.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=2))
            x = F.relu(normed(state, f"{name}.bn2", out) + x)
    return F.linear(x.flatten(2).mean(2), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize(("name", "blocks"), [("resnet-18", (2, 2, 2, 2)), ("resnet-34", (3, 4, 6, 3))])
def test_logits_equal_the_definition(shaken: Callable[..., nets.Net], name: str, blocks: tuple[int, ...]) -> None:
    net = shaken(name)
    pixels = torch.rand(2, 3, 16, 16, dtype=torch.float64)
    assert torch.allclose(net(pixels), recomputed(net.state_dict(), pixels, blocks), rtol=1e-5, atol=1e-6)


def test_a_training_step_runs_backwards_through_the_operations_in_place() -> None:
    torch.manual_seed(0)
    net = nets.build("resnet-18", classes=2)
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
