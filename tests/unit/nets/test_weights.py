"""What weights are known by."""

import copy
from pathlib import Path
from typing import Any, cast

import torch

from macs import nets
from macs.data.spec import MEMORY
from macs.nets._weights import Origin


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
