"""Where networks run, and in which arithmetic."""

from typing import Any

import pytest
import torch
from torch import nn

from macs.core.devices import best_device, channels_last, device_of, use_bf16

CPU = torch.device("cpu")


def test_the_accelerator_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((None, CPU), (torch.device("mps"), torch.device("mps"))):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, there=there: there)
        assert best_device() == expected


def test_a_network_is_where_its_weights_are() -> None:
    assert device_of(nn.Linear(1, 1, device="meta")) == torch.device("meta")
    assert device_of(nn.Linear(1, 1)) == CPU
    assert device_of(nn.ReLU()) == CPU  # it has no weights


def test_weights_are_laid_out_anew_in_place_and_keep_their_values() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    weight = net.get_parameter("0.weight")
    before = weight.detach().clone()
    assert channels_last(net) is net and net.get_parameter("0.weight") is weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert torch.equal(weight, before)


@pytest.mark.parametrize("device", [CPU, torch.device("cuda"), torch.device("mps")])
def test_a_precision_that_is_named_is_taken(device: Any) -> None:
    assert use_bf16("bf16", device) and not use_bf16("float32", device)


@pytest.mark.parametrize(("amx", "avx512"), [(False, False), (True, False), (False, True), (True, True)])
def test_auto_on_a_cpu_asks_for_its_instructions(monkeypatch: pytest.MonkeyPatch, amx: Any, avx512: Any) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    assert use_bf16("auto", CPU) is (amx or avx512)


def test_auto_on_a_gpu_counts_no_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert not use_bf16("auto", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert use_bf16("auto", torch.device("cuda"))
    assert not use_bf16("auto", torch.device("mps"))
