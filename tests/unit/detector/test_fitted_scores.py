"""Fitted scores in detectors: saved, loaded, exported; bound to their network; a user's own as one file outside."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import macs
from forging import forged
from macs import scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.scores.knn import KNN
from tiny import noise

FITTED = [name for name in scores.available() if scores.get(name).reads == "features"]


@pytest.mark.parametrize("name", FITTED)
def test_what_is_saved_comes_back_with_equal_confidences(
    name: str, trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, name).fit(known).calibrate(validation, keep=0.8)
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    images = noise(40, seed=3)
    np.testing.assert_array_equal(loaded.predict(images).confidence, detector.predict(images).confidence)
    assert repr(loaded.score) == repr(detector.score) and loaded.calibrated.score == name
    by_hand = scores.get(name).fit(scores.know(trained, known, precision="float32"))
    expected = scores.ask(trained, images, by_hand, "float32").confidence
    np.testing.assert_array_equal(detector.predict(images).confidence, expected)


def test_settings_are_kept_and_files_are_judged_alike(
    trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, KNN(k=3)).fit(known, images=50).calibrate(validation)
    assert len(detector.score.vectors) == 50
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    assert loaded.score.k == 3
    images = noise(9, seed=4)
    np.save(tmp_path / "x.npy", images.pixels[:])
    rows = np.array([row.confidence for row in loaded.predict_files(tmp_path / "x.npy")])
    np.testing.assert_allclose(rows, detector.predict(images).confidence, rtol=1e-5)


def test_without_a_fit_there_is_no_calibration(trained: nn.Module, validation: ImageSet) -> None:
    with pytest.raises(MacsError, match=r"KNN\(\) \[unfitted\] has to be fitted to ID training images before"):
        Detector(trained, "knn").calibrate(validation)
    assert Detector(trained, "ash").calibrate(validation).score.fitted  # the last layer is all that it needs


def test_a_new_fit_forgets_the_calibration(trained: nn.Module, known: ImageSet, validation: ImageSet) -> None:
    detector = Detector(trained, "knn").fit(known).calibrate(validation)
    assert detector.fit(known).calibration is None
    assert Detector(trained, "msp").calibrate(validation).fit(known).calibration is not None


def test_a_score_belongs_to_its_network(trained: nn.Module, known: ImageSet, validation: ImageSet) -> None:
    fitted = Detector(trained, "knn").fit(known).score
    assert Detector(trained, fitted).calibrate(validation).score.fitted
    with pytest.raises(MacsError, match=r"KNN\(\) is fitted to another network"):
        Detector(macs.nets.build("wrn-10-1", classes=3), fitted)


def test_a_network_that_was_trained_further_is_neither_saved_nor_exported(
    trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    net = copy.deepcopy(trained)
    detector = Detector(net, "knn").fit(known).calibrate(validation)
    net.train()(torch.rand(8, 3, 32, 32))  # which updates the statistics of batch norm
    net.eval()
    for write, name in ((detector.save, "d.safetensors"), (detector.export, "d.onnx")):
        with pytest.raises(MacsError, match=r"KNN\(\) is fitted to another network or to other weights"):
            write(tmp_path / name)
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("name", "tensor", "complaint"),
    [
        ("score.vectors", torch.zeros(4, 5), "score that does not fit its network"),
        ("score.vectors", torch.zeros(3), "score that does not fit its network"),
        (
            "score.vectors",
            torch.full((4, 64), torch.nan),
            r"score with numbers that are not finite \(vectors\)",
        ),
        ("score.vectors", None, r"does not fit KNN\(\), whose tensors are vectors"),
        ("score.other", torch.zeros(1), r"does not fit KNN\(\), whose tensors are vectors"),
        ("other.bank", torch.zeros(1), "neither the network's nor the score's"),
        ("score.network", torch.zeros(6, dtype=torch.uint8), "fitted to another network"),
    ],
)
def test_forged_tensors_of_a_score_are_refused(
    trained: nn.Module,
    known: ImageSet,
    validation: ImageSet,
    tmp_path: Path,
    name: str,
    tensor: Tensor | None,
    complaint: str,
) -> None:
    Detector(trained, "knn").fit(known).calibrate(validation).save(tmp_path / "d.safetensors")
    tensors = safetensors.torch.load_file(tmp_path / "d.safetensors")
    tensors = {key: value for key, value in tensors.items() if key != name}
    tensors |= {} if tensor is None else {name: tensor}
    with pytest.raises(MacsError, match=complaint):
        Detector.load(forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", tensors))


@pytest.mark.parametrize("settings", [{"k": 0}, {"k": "x"}, {"bank": -1}, {"vectors": 1}])
def test_forged_settings_are_refused(
    trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path, settings: dict[str, Any]
) -> None:
    Detector(trained, "knn").fit(known).calibrate(validation).save(tmp_path / "d.safetensors")
    with pytest.raises(MacsError, match="Cannot make the score knn of"):
        Detector.load(forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", settings=settings))


class Split(nn.Module):
    """As timm's networks split themselves; the features are pooled and doubled before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = nn.Conv2d(3, 6, 3), nn.Linear(6, 3)

    def forward_features(self, pixels: Tensor) -> Tensor:
        return self.stem(pixels).relu()

    def forward_head(self, maps: Tensor, pre_logits: bool = False) -> Tensor:
        features = 2 * maps.mean(dim=(2, 3))
        return features if pre_logits else self.last(features)

    def get_classifier(self) -> nn.Module | tuple[nn.Module, ...]:
        return self.last

    def forward(self, pixels: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(pixels))


def test_a_network_with_timms_methods_splits_itself(
    known: ImageSet, validation: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    net = Split().eval()
    pixels = torch.rand(4, 3, 16, 16)
    features, logits = macs.nets.features_of(net, pixels)
    assert torch.equal(features, 2 * net.stem(pixels).relu().mean(dim=(2, 3))) and torch.equal(logits, net(pixels))
    assert Detector(net, "vim").fit(known).calibrate(validation).score.fitted
    # With two heads, the hooks find the one that ran last.
    monkeypatch.setattr(net, "get_classifier", lambda: (net.last, net.last))
    assert torch.allclose(macs.nets.features_of(net, pixels)[0], features)
