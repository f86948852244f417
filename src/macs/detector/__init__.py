"""Detector: a threshold, and a yes or no for an image.

    detector = macs.Detector(net, score="msp").calibrate(validation, keep=0.95)
    detector.predict(images).is_ood
    detector.save("d.safetensors"); detector.export("d.onnx")

Reading a detector file's label and finding images need no torch, so nothing is imported here before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macs.detector._detector import Detector, Verdicts
    from macs.detector.calibration import Calibration

_NAMES = {
    "Calibration": "macs.detector.calibration",
    "Detector": "macs.detector._detector",
    "Verdicts": "macs.detector._detector",
}

__all__ = ["Calibration", "Detector", "Verdicts"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'macs.detector' has no attribute {name!r}")
