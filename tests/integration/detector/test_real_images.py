"""A detector of a real classifier on real images: the promise is kept, and ONNX Runtime agrees."""

from pathlib import Path

import numpy as np
import pytest

from macs import data, nets
from macs.detector import Detector, Verdicts
from macs.detector.calibration import conformal_threshold
from macs.detector.runtime import Runtime, session
from macs.detector.score_selection import candidate_names
from macs.scores import Known, get, know

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
        first, second = np.split(random.permutation(verdicts.confidence), 2)
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
    names = ["index", "confidence", "is_ood"]
    label, confidence, is_ood = session((tmp_path / "d.onnx").read_bytes()).run(names, {"images": images})
    np.testing.assert_array_equal(label, verdicts.index[:500])
    np.testing.assert_array_equal(is_ood, verdicts.is_ood[:500])
    np.testing.assert_allclose(confidence, verdicts.confidence[:500], atol=1e-5, rtol=0)


@pytest.fixture(scope="module")
def mixed(data_root: Path) -> data.ImageSet:
    """Known and unknown images in turn, 80 of each set."""
    sets = [
        data.load(name, "test", root=data_root) for name in ("cifar10", "svhn", "textures", "places365", "cifar100")
    ]
    pixels = [images.pixels[np.random.default_rng(1).permutation(len(images))[:80]] for images in sets]
    return data.ImageSet.from_array(np.concatenate(pixels), name="mixed")


@pytest.fixture(scope="module")
def known(detector: Detector, cifar10: data.ImageSet, data_root: Path) -> Known:
    train = data.load("cifar10", "train", root=data_root)
    return know(detector.net, train, cifar10.subset(np.arange(1500, 2000)), limit=2000, precision="float32")


@pytest.mark.parametrize("name", candidate_names())
def test_every_score_gives_the_same_verdicts_saved_loaded_and_exported(
    name: str, detector: Detector, known: Known, cifar10: data.ImageSet, mixed: data.ImageSet, tmp_path: Path
) -> None:
    score = get(name)
    fitted = Detector(detector.net, score if score.fitted else score.fit(known))
    fitted = fitted.calibrate(cifar10.subset(np.arange(500)))
    fitted.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    loaded.export(tmp_path / "d.onnx")
    ours, again, theirs = fitted.predict(mixed), loaded.predict(mixed), Runtime(tmp_path / "d.onnx").predict(mixed)
    for field in ("index", "confidence", "p_value", "is_ood"):
        np.testing.assert_array_equal(getattr(ours, field), getattr(again, field))
    np.testing.assert_array_equal(ours.index, theirs.index)
    # Some scores change their sign, so that their own size is no measure near 0: their spread is.
    scale = np.maximum(np.abs(ours.confidence), ours.confidence.std())
    assert (np.abs(ours.confidence - theirs.confidence) <= 1e-4 * scale).all()
    near = np.abs(ours.confidence - fitted.thresholds()) <= 1e-4 * scale
    assert (ours.is_ood == theirs.is_ood)[~near].all()
