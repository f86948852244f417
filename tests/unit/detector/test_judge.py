"""What both kinds of detector share: prepared images, thresholds, and false discovery rates they can promise."""

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.judge import Judge
from tiny import noise


def test_verdicts_by_p_values_are_those_of_the_ranks(detector: Detector, validation: ImageSet) -> None:
    images = noise(30, seed=5)
    verdicts = detector.predict(images, fdr=0.4)
    calibrated = detector.predict(validation).confidences
    n = len(calibrated)
    p_values = np.array([(1 + (calibrated <= c).sum()) / (n + 1) for c in verdicts.confidences])
    np.testing.assert_allclose(verdicts.p_values, p_values, rtol=1e-6)
    ascending = np.sort(p_values)
    reached = [p for i, p in enumerate(ascending, 1) if p <= 0.4 * i / 30 + 1e-9]
    np.testing.assert_array_equal(verdicts.is_ood, p_values <= max(reached, default=-1) + 1e-9)
    assert 0 < verdicts.is_ood.sum() < 30 or not reached or verdicts.is_ood.all()


def test_an_image_below_the_threshold_has_a_p_value_of_at_most_what_is_lost(
    detector: Detector, validation: ImageSet
) -> None:
    verdicts = detector.predict(noise(200, seed=6))
    (threshold,) = detector.calibrated.thresholds
    np.testing.assert_array_equal(verdicts.is_ood, verdicts.p_values <= (threshold.rank + 0.5) / (threshold.images + 1))


def test_a_rate_below_the_resolution_of_the_calibration_is_refused(detector: Detector) -> None:
    n = detector.calibrated.images
    with pytest.raises(MacsError, match=rf"takes at least 9999 calibration images, but there are {n}"):
        detector.predict(noise(2, seed=0), fdr=0.0001)
    with pytest.raises(MacsError, match="two ways to decide; give one of them"):
        detector.predict(noise(2, seed=0), fdr=0.5, threshold=0.5)
    with pytest.raises(MacsError, match="must be above 0 and below 1"):
        detector.predict_files("x", fdr=2)


def test_a_subclass_says_how_to_ask() -> None:
    with pytest.raises(NotImplementedError, match="Judge does not define `asking`"):
        Judge().asking()
