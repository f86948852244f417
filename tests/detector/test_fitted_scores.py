"""Fitted scores in detectors: saved, loaded, exported; bound to their network; a user's own as one file outside."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from dots import Dots
from test_detector_files import forged
from torch import Tensor, nn

import macs
from macs import scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.runtime import session
from macs.scores.knn import KNN
from tiny import noise, stripes

FITTED = [name for name in scores.available() if scores.get(name).reads == "features"]

OUTSIDE = '''
"""Centroid: how near the features lie to the mean of ID training images, in units of a setting."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

import macs
from macs.core.settings import Span
from macs.scores import Known, Score

@dataclass
class Centroid(Score):
    reads = "features"
    fitted_to = "training images"
    unit: Annotated[float, Span(0, 100, open="least")] = 1
    centre: Tensor = field(init=False)

    def learn(self, known: Known) -> dict[str, Tensor]:
        return {"centre": known.features.mean(0)}

    def confidence(self, outputs):
        return -(outputs.features - self.centre).norm(dim=1) / self.unit


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    train = macs.ImageSet.from_array(pixels[:30], np.arange(30) % 3, ["a", "b", "c"])
    validation = macs.ImageSet.from_array(pixels[30:], np.arange(30) % 3, ["a", "b", "c"])
    torch.manual_seed(0)
    net = macs.nets.build("wrn-10-1", classes=3)
    detector = macs.Detector(net, Centroid(unit=2)).fit(train).calibrate(validation)
    detector.save(folder / "d.safetensors")
    loaded = macs.Detector.load(folder / "d.safetensors", score=Centroid())
    print(repr(loaded.score), (loaded.predict(pixels).confidences == detector.predict(pixels).confidences).all())
    features, _ = macs.nets.features_of(net.eval(), torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    by_hand = -(features - features[:30].mean(0)).norm(dim=1) / 2
    print(np.allclose(loaded.predict(pixels).confidences, by_hand.detach(), rtol=1e-4))
'''


def test_a_score_of_the_users_own_as_one_file(tmp_path: Path) -> None:
    (tmp_path / "centroid.py").write_text(OUTSIDE)
    command = [sys.executable, str(tmp_path / "centroid.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["Centroid(unit=2.0) True", "True"], done.stderr
    with safetensors.safe_open(tmp_path / "d.safetensors", "numpy") as file:
        label = json.loads(file.metadata()["macs"])
        assert {"score.centre", "score.network"} <= set(file.keys())
    assert (label["score"], label["settings"]) == ("__main__:Centroid", {"unit": 2.0})
    with pytest.raises(MacsError, match="holds a score of your own, here __main__:Centroid, and loads only with it"):
        Detector.load(tmp_path / "d.safetensors")
    with pytest.raises(MacsError, match="Cannot make the score|calibrated with the score __main__:Centroid, not"):
        Detector.load(tmp_path / "d.safetensors", score="knn")


@pytest.mark.parametrize("name", FITTED)
def test_what_is_saved_comes_back_with_equal_confidences(
    name: str, trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, name).fit(known).calibrate(validation, keep=0.8)
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    images = noise(40, seed=3)
    np.testing.assert_array_equal(loaded.predict(images).confidences, detector.predict(images).confidences)
    assert repr(loaded.score) == repr(detector.score) and loaded.calibrated.score == name
    by_hand = scores.get(name).fit(scores.know(trained, known, precision="float32"))
    expected = scores.ask(trained, images, by_hand, "float32").confidences
    np.testing.assert_array_equal(detector.predict(images).confidences, expected)


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
    np.testing.assert_allclose(rows, detector.predict(images).confidences, rtol=1e-5)


@pytest.mark.parametrize("name", ["ash-b", "vim"])
@pytest.mark.parametrize("ours", [True, False])
def test_the_exported_file_holds_features_buffers_and_score(
    name: str, ours: bool, trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    detector = Detector(trained if ours else Dots(), name).fit(known).calibrate(validation)
    detector.export(tmp_path / "d.onnx")
    images = noise(23, seed=5)
    found = session((tmp_path / "d.onnx").read_bytes()).run(["confidence"], {"images": images.pixels[:]})[0]
    expected = detector.predict(images).confidences
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "d.onnx").metadata_props}
    assert told["score"] == name and json.loads(told["settings"]) == detector.score.settings


def test_eight_bits_are_for_the_network_and_not_for_the_score(
    trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, "knn").fit(known).calibrate(validation)
    detector.export_int8(tmp_path / "d.onnx", stripes(200, seed=12), max_drop=100)
    graph = onnx.load(tmp_path / "d.onnx").graph
    floats = {tensor.name: tensor.dims for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    (product,) = [node for node in graph.node if node.op_type == "MatMul" and node.name.startswith("score/")]
    assert list(floats[product.input[1]]) == list(detector.score.vectors.T.shape)


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
