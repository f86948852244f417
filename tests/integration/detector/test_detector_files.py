"""Detectors written and read, and the files that must not be."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.detector import Detector, Runtime
from tiny import noise


def test_a_file_of_before_p_values_judges_by_its_threshold_alone(detector: Detector, tmp_path: Path) -> None:
    old = replace(detector, calibration=replace(detector.calibrated, ranked=()), reference=None)
    old.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    verdicts = loaded.predict(noise(5, seed=4))
    np.testing.assert_array_equal(verdicts.is_ood, detector.predict(noise(5, seed=4)).is_ood)
    assert np.isnan(verdicts.p_values).all()
    with pytest.raises(MacsError, match="saved without its calibration confidences; calibrate again"):
        loaded.predict(noise(5, seed=4), fdr=0.5)
    loaded.export(tmp_path / "d.onnx")
    assert np.isnan(Runtime(tmp_path / "d.onnx").predict(noise(5, seed=4)).p_values).all()
