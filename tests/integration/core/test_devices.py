"""Where networks run, and in which arithmetic."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from macs.core.devices import _multiplies_bf16


def test_a_process_that_dies_of_bf16_does_not_take_us_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for body, works in (("exit 0", True), ("exit 1", False), ("kill -ILL $$", False)):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{body}\n")
        python.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(python))
        _multiplies_bf16.cache_clear()
        assert _multiplies_bf16() is works
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    _multiplies_bf16.cache_clear()
    assert not _multiplies_bf16()
    _multiplies_bf16.cache_clear()


def test_every_precision_runs_on_this_machine_or_is_refused() -> None:
    """The real attempt, without the limit that the tests set: whatever this processor promises, nothing crashes."""
    environment = {name: value for name, value in os.environ.items() if name != "ONEDNN_MAX_CPU_ISA"}
    code = """
import torch
from macs.core.devices import use_bf16
from macs.core.errors import MacsError

cpu = torch.device("cpu")
try:
    bf16 = use_bf16("auto", cpu) or use_bf16("bf16", cpu)
except MacsError:
    bf16 = False
with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
    print(torch.nn.Linear(64, 10)(torch.ones(32, 64)).isfinite().all().item())
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
