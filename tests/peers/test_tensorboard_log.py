"""The example of a callback, run as it stands where TensorBoard is installed: its own reader finds our numbers."""

import runpy
from pathlib import Path

import pytest

import macs
from repository import ROOT

EXAMPLE = ROOT / "examples" / "tensorboard_log.py"


def test_tensorboard_reads_back_what_the_training_returns(tmp_path: Path) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    history = runpy.run_path(str(EXAMPLE))["main"](tmp_path, epochs=2)
    log = reader.EventAccumulator(str(tmp_path)).Reload()
    for name in ("loss", "accuracy", "validation_accuracy", "validation_auroc"):
        points = [(event.step, event.value) for event in log.Scalars(name)]
        assert points == [(epoch.epoch, pytest.approx(getattr(epoch, name), rel=1e-6)) for epoch in history]
    assert "confidence_in" in log.Tags()["scalars"] and "epoch" not in log.Tags()["scalars"]
    net = macs.nets.build("wrn-10-1", classes=8)
    assert set(log.Tags()["histograms"]) == {name for name, _ in net.named_parameters()}
