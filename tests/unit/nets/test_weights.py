"""What weights are known by."""

import copy
from pathlib import Path
from typing import Any, cast

import torch

from dots import Dots
from macs import nets
from macs.data.spec import MEMORY
from macs.nets import Origin


def small() -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nets.build("wrn-10-1", classes=3)


def test_weights_are_told_apart_by_one_bit_and_not_by_their_layout() -> None:
    one, other = small(), small()
    cast(Any, other).to(memory_format=torch.channels_last)
    assert nets.weights_hash(one) == nets.weights_hash(other)
    with torch.no_grad():
        other.get_parameter("fc.bias")[0] += 1e-7
    assert nets.weights_hash(one) != nets.weights_hash(other)


def test_a_network_and_its_copies_know_where_their_weights_came_from_until_they_change(tmp_path: Path) -> None:
    net = small()
    weights = nets.weights_hash(net)
    assert nets.origin_of(net) == Origin(MEMORY, weights)
    nets.remember_origin(net, "random", 0)
    assert nets.origin_of(net) == Origin("random", weights, 0)
    nets.save(net, tmp_path / "net.safetensors")
    torch.save(net.state_dict(), tmp_path / "net.pt")
    for name in ("net.safetensors", "net.pt"):
        loaded = nets.load(tmp_path / name, "wrn-10-1", classes=3)
        assert nets.origin_of(copy.deepcopy(loaded)) == Origin(str((tmp_path / name).resolve()), weights)
    with torch.no_grad():
        loaded.get_parameter("fc.bias")[0] += 1
    assert nets.origin_of(loaded).source == MEMORY


def test_a_network_is_told_apart_by_all_that_its_outputs_depend_on() -> None:
    first = nets.identity(small())
    assert first is not None and nets.identity(small().eval()) == first
    moved = small()
    nets.remember_origin(moved, "elsewhere.pt")
    cast(Any, moved).to(memory_format=torch.channels_last)
    assert nets.identity(moved) == first

    weight, buffer, normalised, setting, plain = (small() for _ in range(5))
    with torch.no_grad():
        weight.get_parameter("fc.bias")[0] += 1e-7
        buffer.get_buffer("bn1.running_mean")[0] += 1e-7
        normalise = next(module for module in normalised.modules() if isinstance(module, nets.Normalise))
        normalise.mean[0] += 1e-7  # not in the state dict
    cast(Any, setting).bn1.eps = 1e-4
    cast(Any, plain).bn1.constant = torch.ones(1)
    changed = [nets.identity(net) for net in (weight, buffer, normalised, setting, plain)]
    assert None not in changed and len({first, *changed}) == 6


def test_a_network_whose_code_is_unknown_has_no_identity() -> None:
    hooked, early, replaced = small(), small(), small()
    hooked.get_submodule("bn1").register_forward_hook(lambda module, inputs, output: output * 2)
    early.register_forward_pre_hook(lambda module, inputs: None)
    cast(Any, replaced).forward = lambda pixels: pixels.mean((2, 3))
    for net in (hooked, early, replaced, Dots(), torch.nn.Sequential(Dots())):
        assert nets.identity(net) is None
