"""Where networks run, and in which arithmetic."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import macs
from macs.core.devices import best_device, channels_last, device_of, use_bf16
from macs.core.errors import MacsError
from tiny import stripes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _any_device() -> Iterator[None]:
    """The choice is the process's, so it is taken back."""
    macs.use_device()
    yield
    macs.use_device()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


@pytest.mark.usefixtures("two_gpus")
def test_a_device_is_chosen_by_name_until_another_is() -> None:
    assert best_device() == torch.device("cuda")
    for name in ("cpu", "cuda:1", "cuda", "cuda:0"):
        assert macs.use_device(name) == best_device() == torch.device(name)
    assert macs.use_device(torch.device("cuda", 1)) == best_device() == torch.device("cuda:1")
    assert macs.use_device("auto") == best_device() == torch.device("cuda")


def test_a_device_that_is_not_there_is_one_sentence_and_changes_nothing(two_gpus: None) -> None:
    macs.use_device("cuda:1")
    for name in ("cuda:2", "cuda:-1", "mps", "gpu", "", "CPU", "meta", "cuda:x"):
        with pytest.raises(MacsError, match=f"no device on this machine called '{name}'.* auto, cpu, cuda, cuda:0, "):
            macs.use_device(name)
    assert best_device() == torch.device("cuda:1")


def test_without_an_accelerator_there_is_only_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    with pytest.raises(MacsError, match=r"no device on this machine called 'cuda'; choose one of auto, cpu[.]$"):
        macs.use_device("cuda")
    assert macs.use_device("cpu") == macs.use_device("auto") == CPU


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("name", "kind", "devices"), [("cpu", "cpu", 1), ("auto", "cuda", 1), ("cuda:1", "cuda", [1])])
def test_training_takes_place_on_that_device(
    name: str, kind: str, devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no GPU to train on here, but lightning is asked for the right one."""

    class Asked(Exception):
        pass

    def fabric(**arguments: Any) -> None:
        raise Asked(arguments["accelerator"], arguments["devices"])

    monkeypatch.setattr("macs.training.loop.Fabric", fabric)
    macs.use_device(name)
    recipe = macs.Recipe(batch_out=0, precision="float32")
    with pytest.raises(Asked) as asked:
        macs.pretrain(macs.nets.build("wrn-10-1", classes=3), stripes(9, seed=1), recipe=recipe, progress=False)
    assert asked.value.args == (kind, devices)


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
