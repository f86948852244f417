"""Detector: a network, a score and a threshold, which decide for each image whether it is ID or OOD.

    detector = macs.Detector(net, score="msp").calibrate(validation, keep=0.95)
    detector.predict(images).is_ood
    detector.save("d.safetensors"); detector.export("d.onnx")

Reading a detector file's label and finding images need no torch, so nothing is imported here before it is used.
"""

from typing import TYPE_CHECKING

from macs.core import lazily

if TYPE_CHECKING:
    from macs.detector._detector import Detector
    from macs.detector._feature_detector import FeatureDetector
    from macs.detector.calibration import Calibration
    from macs.detector.covariate_shift import LikelihoodRatio, effective_size, weighted_p_values
    from macs.detector.multilabel import LabelThresholds
    from macs.detector.runtime import FeatureRuntime, Runtime
    from macs.detector.score_selection import Choice
    from macs.predictions import Verdicts

__all__ = [
    "Calibration",
    "Choice",
    "Detector",
    "FeatureDetector",
    "FeatureRuntime",
    "LabelThresholds",
    "LikelihoodRatio",
    "Runtime",
    "Verdicts",
    "effective_size",
    "weighted_p_values",
]

__getattr__ = lazily(
    __name__,
    {
        "Calibration": "macs.detector.calibration",
        "Choice": "macs.detector.score_selection",
        "Detector": "macs.detector._detector",
        "FeatureDetector": "macs.detector._feature_detector",
        "FeatureRuntime": "macs.detector.runtime",
        "LabelThresholds": "macs.detector.multilabel",
        "LikelihoodRatio": "macs.detector.covariate_shift",
        "Runtime": "macs.detector.runtime",
        "Verdicts": "macs.predictions",
        "effective_size": "macs.detector.covariate_shift",
        "weighted_p_values": "macs.detector.covariate_shift",
    },
)
