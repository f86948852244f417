"""The example with Lightning, run as it stands."""

import math
import runpy
import sys

import pytest

import macs
from repository import ROOT

EXAMPLES = ROOT / "examples"


def test_the_module_learns_and_measures_what_macs_evaluate_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    module = runpy.run_path(str(EXAMPLES / "your_lightning.py"))["main"](
        epochs=2, accelerator="cpu", enable_progress_bar=False, enable_model_summary=False
    )
    found = module.trainer.callback_metrics
    guessing = 1.5 * math.log(8) + 0.5 * 0.5  # cross-entropy, half of it again for outliers, half of the margin
    assert found["loss"] < guessing - 0.2
    known, unknown = macs.data.load("digits", "test"), macs.data.load("digits-8-9", "test")
    full = macs.evaluate(module.net, known, {"new": unknown}, precision="float32").sets[0].full
    assert (float(found["auroc"]), float(found["fpr95"])) == pytest.approx((full.auroc, full.fpr95), abs=1e-3)
