"""The number of devices is checked before anything starts; what is started is tested in tests/integration."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from macs.core.errors import MacsError, MacsWarning
from macs.training import distributed
from macs.training.distributed import start


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    calls: list[object] = []

    def launch(*arguments: object) -> int:
        calls.append(arguments)
        return 7

    monkeypatch.setattr(distributed, "_launch", launch)
    return calls


def test_one_device_starts_nothing(launched: list[object]) -> None:
    assert start(1, 1, None, [], cpu=True) is None and launched == []


def test_several_get_the_same_command(launched: list[object]) -> None:
    assert start(1, 3, "head:29500", ["finetune"], cpu=True) == 7
    assert launched == [(1, 3, "head:29500", ["finetune"])]


def test_more_processes_than_cores_are_slow(launched: list[object]) -> None:
    with pytest.warns(MacsWarning, match="processes share"):
        start((os.cpu_count() or 1) + 1, 1, None, [], cpu=True)


def test_far_more_processes_than_cores_are_refused(launched: list[object]) -> None:
    with pytest.raises(MacsError, match="cores and no GPU; 1000 processes are too many"):
        start(1000, 1, None, [], cpu=True)
    assert launched == []


def test_devices_that_are_not_there(launched: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(type="cuda")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: cuda)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(MacsError, match="has 2 cuda devices, not 4"):
        start(4, 1, None, [], cpu=False)
    assert launched == [] and start(2, 1, None, [], cpu=False) == 7


def test_the_last_words_of_a_process(tmp_path: Path) -> None:
    (tmp_path / "macs_x/attempt_0/1").mkdir(parents=True)
    (tmp_path / "macs_x/attempt_0/1/stderr.log").write_text("warning: a\nerror: There is no data.\n")
    assert distributed._last_words(tmp_path, 1) == "error: There is no data."
    assert "without a message" in distributed._last_words(tmp_path, 2)
