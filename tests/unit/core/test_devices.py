"""Where networks run, and in which arithmetic."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import macs
from macs.core.devices import best_device, channels_last, device_of, explained, use_bf16
from macs.core.errors import MacsError
from macs.training.distributed import connect
from tiny import stripes

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _any_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The choice is the process's, so it is taken back, when the accelerators are again the machine's own."""
    macs.use_device()
    yield
    monkeypatch.undo()
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

    monkeypatch.setattr("macs.training.distributed.Fabric", fabric)
    macs.use_device(name)
    recipe = macs.Recipe(batch_out=0, precision="float32")
    with pytest.raises(Asked) as asked:
        connect(recipe, stripes(9, seed=1), None)
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


@pytest.mark.parametrize(("amx", "works"), [(False, False), (False, True), (True, False), (True, True)])
def test_auto_on_a_cpu_takes_amx_where_it_works(monkeypatch: pytest.MonkeyPatch, amx: Any, works: Any) -> None:
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr("macs.core.devices._multiplies_bf16", lambda: works)
    assert use_bf16("auto", CPU) is (amx and works)
    if amx and not works:
        with pytest.raises(MacsError, match="bf16 fails on it.* --precision float32, or set ONEDNN_MAX_CPU_ISA="):
            use_bf16("bf16", CPU)
    else:
        assert use_bf16("bf16", CPU)


def test_amx_that_the_user_has_switched_off_is_neither_tried_nor_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr("macs.core.devices._multiplies_bf16", lambda: pytest.fail("tried"))
    for limit in ("AVX512_CORE_BF16", "avx2"):
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        assert use_bf16("bf16", CPU) and not use_bf16("auto", CPU)


def test_why_a_network_runs_where_and_how_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    threads, slow = "3 threads (OMP_NUM_THREADS=3)", "this processor has no AMX, without which bf16 is slower"
    assert explained(CPU, "auto") == f"on cpu (torch finds no GPU), {threads}, in float32 ({slow})"
    monkeypatch.delenv("OMP_NUM_THREADS")
    macs.use_device("cpu")
    assert explained(CPU, "bf16") == "on cpu (as asked), 3 threads, in bf16 (as asked)"
    macs.use_device()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert explained(CPU, "float32") == "on cpu (where the network is), 3 threads, in float32 (as asked)"
    assert explained(torch.device("cuda:0"), "auto") == (
        "on cuda:0 (found by torch), 3 threads, in bf16 (this GPU has bf16)"
    )


def test_auto_on_a_gpu_counts_no_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert not use_bf16("auto", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    assert use_bf16("auto", torch.device("cuda"))
    assert not use_bf16("auto", torch.device("mps"))
