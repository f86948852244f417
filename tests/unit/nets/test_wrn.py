"""The wide residual network against a second computation of it, from the state dict and by functional calls."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from macs import nets

MEAN, STD = (125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)


def normed(state: dict[str, Tensor], name: str, x: Tensor, training: bool = False) -> Tensor:
    stats = (None, None) if training else (state[f"{name}.running_mean"], state[f"{name}.running_var"])
    return F.batch_norm(x, *stats, state[f"{name}.weight"], state[f"{name}.bias"], training=training)


def recomputed(state: dict[str, Tensor], pixels: Tensor, blocks: int, training: bool = False) -> Tensor:
    """Logits by the definition, with the names of the public checkpoints."""
    x = torch.stack([(pixels[:, c] - MEAN[c]) / STD[c] for c in range(3)], dim=1)
    x = F.conv2d(x, state["conv1.weight"], padding=1)
    for group in (1, 2, 3):
        for i in range(blocks):
            name, stride = f"block{group}.layer.{i}", 2 if i == 0 and group > 1 else 1
            active = F.relu(normed(state, f"{name}.bn1", x, training))
            if f"{name}.convShortcut.weight" in state:
                x = F.conv2d(active, state[f"{name}.convShortcut.weight"], stride=stride)
            out = F.conv2d(active, state[f"{name}.conv1.weight"], stride=stride, padding=1)
            out = F.relu(normed(state, f"{name}.bn2", out, training))
            x = x + F.conv2d(out, state[f"{name}.conv2.weight"], padding=1)
    x = F.relu(normed(state, "bn1", x, training))
    return F.linear(x.flatten(2).mean(2), state["fc.weight"], state["fc.bias"])


@pytest.mark.parametrize(("name", "blocks"), [("wrn-10-1", 1), ("wrn-16-2", 2)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_logits_equal_the_definition(
    shaken: Callable[..., nets.Net], name: str, blocks: int, channels_last: bool
) -> None:
    net: Any = shaken(name)
    pixels = torch.rand(3, 3, 16, 16, dtype=torch.float64)
    expected = recomputed(net.state_dict(), pixels, blocks)
    if channels_last:
        net, pixels = net.to(memory_format=torch.channels_last), pixels.contiguous(memory_format=torch.channels_last)
    # The buffers of the normalisation were rounded to float32 when the network was made.
    assert torch.allclose(net(pixels), expected, rtol=1e-5, atol=1e-6)


def test_gradients_survive_the_operations_in_place(shaken: Callable[..., nets.Net]) -> None:
    net = shaken("wrn-10-2", dropout=0.0).train()
    pixels = torch.rand(4, 3, 16, 16, dtype=torch.float64)
    state = {key: value.detach().clone() for key, value in net.state_dict().items()}
    names = [name for name, _ in net.named_parameters()]
    for name in names:
        state[name].requires_grad_(True)
    expected = torch.autograd.grad(recomputed(state, pixels, 1, training=True).sin().sum(), [state[n] for n in names])
    found = torch.autograd.grad(net(pixels).sin().sum(), list(net.parameters()))
    for name, ours, theirs in zip(names, found, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6), name


def test_dropout_acts_between_the_two_convolutions_and_nowhere_else() -> None:
    torch.manual_seed(0)
    net: Any = nets.build("wrn-10-4", classes=3, dropout=0.25)
    block = net.block1.layer[0]
    seen = {}
    for norm in (block.bn1, block.bn2):  # all activations are 1, so that a 0 can only come from dropout
        torch.nn.init.zeros_(norm.weight)
        torch.nn.init.ones_(norm.bias)
    for name in ("conv1", "conv2", "convShortcut"):
        getattr(block, name).register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    net(torch.rand(2, 3, 32, 32))
    assert seen["conv1"].eq(1).all()
    assert seen["convShortcut"].eq(1).all()
    assert seen["conv2"].unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert seen["conv2"].eq(0).double().mean().item() == pytest.approx(0.25, abs=0.01)


@pytest.mark.parametrize("name", ["wrn-10-1", "allconv"])
def test_a_training_step_runs_backwards_through_dropout(name: str) -> None:
    torch.manual_seed(0)
    net = nets.build(name, classes=2)
    net(torch.rand(2, 3, 16, 16)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_dropout_is_the_papers_unless_told_otherwise() -> None:
    assert nets.build("wrn-10-1", 2).dropout == 0.3
    assert nets.build("wrn-10-1", 2, dropout=0.0).dropout == 0


def test_the_first_weights_are_he_normal_by_fan_out() -> None:
    torch.manual_seed(0)
    net: Any = nets.build("wrn-16-4", classes=10)
    kernel = net.block3.layer[0].conv1.weight  # 128 -> 256 channels, so fan-in would give another spread
    assert kernel.std().item() == pytest.approx((2 / (9 * 256)) ** 0.5, rel=0.01)
    assert net.fc.bias.eq(0).all()
    assert net.bn1.weight.eq(1).all()
    assert net.bn1.bias.eq(0).all()


def test_names_are_those_of_the_public_checkpoints() -> None:
    batch_norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {"conv1.weight", "fc.weight", "fc.bias", *(f"bn1.{part}" for part in batch_norm)}
    for group in (1, 2, 3):
        expected.add(f"block{group}.layer.0.convShortcut.weight")
        for i in range(6):
            expected |= {f"block{group}.layer.{i}.conv{n}.weight" for n in (1, 2)}
            expected |= {f"block{group}.layer.{i}.bn{n}.{part}" for n in (1, 2) for part in batch_norm}
    with torch.device("meta"):
        assert set(nets.build("wrn-40-2", classes=10).state_dict()) == expected
