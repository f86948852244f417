"""A detector of a real classifier on real images: the promise is kept, and ONNX Runtime agrees."""

from pathlib import Path

import numpy as np
import pytest

from macs import data, nets
from macs.detector import Detector, Verdicts
from macs.detector.calibration import conformal_threshold
from macs.detector.export import session

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def cifar10(data_root: Path) -> data.ImageSet:
    chosen = np.random.default_rng(0).permutation(10_000)[:2000]
    return data.load("cifar10", "test", root=data_root).subset(chosen)


@pytest.fixture(scope="module")
def detector(cifar10: data.ImageSet, public_weights: str) -> Detector:
    return Detector(nets.load(public_weights, "wrn-40-2", classes=10)).calibrate(cifar10)


@pytest.fixture(scope="module")
def verdicts(detector: Detector, cifar10: data.ImageSet) -> Verdicts:
    return detector.predict(cifar10)


def test_the_other_half_is_kept_as_often_as_stated(verdicts: Verdicts) -> None:
    random, kept = np.random.default_rng(0), []
    for _ in range(1000):
        first, second = np.split(random.permutation(verdicts.confidences), 2)
        threshold = conformal_threshold(first, 0.95)
        kept.append(np.mean(second >= threshold.value))
    low, high = threshold.interval_on(len(second))
    assert 0.93 < np.mean((low <= np.array(kept)) & (np.array(kept) <= high)) < 0.97
    assert np.mean(kept) == pytest.approx(0.95, abs=0.001)


def test_onnx_gives_the_same_verdicts(
    detector: Detector, verdicts: Verdicts, cifar10: data.ImageSet, tmp_path: Path
) -> None:
    detector.export(tmp_path / "d.onnx")
    images = cifar10.pixels[:500]
    names = ["label", "confidence", "is_ood"]
    label, confidence, is_ood = session((tmp_path / "d.onnx").read_bytes()).run(names, {"images": images})
    np.testing.assert_array_equal(label, verdicts.labels[:500])
    np.testing.assert_array_equal(is_ood, verdicts.is_ood[:500])
    np.testing.assert_allclose(confidence, verdicts.confidences[:500], atol=1e-5, rtol=0)
