"""Fitted scores in detectors: saved, loaded, exported; bound to their network; a user's own as one file outside."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
from torch import nn

from cases import slow
from dots import Dots
from macs import scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.runtime import Runtime, session
from tiny import noise, stripes

OTHERS = [name for name in scores.available() if scores.get(name).reads == "features" and name != "vim"]

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
    print(repr(loaded.score), (loaded.predict(pixels).confidence == detector.predict(pixels).confidence).all())
    features, _ = macs.nets.features_of(net.eval(), torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    by_hand = -(features - features[:30].mean(0)).norm(dim=1) / 2
    print(np.allclose(loaded.predict(pixels).confidence, by_hand.detach(), rtol=1e-4))
'''


@pytest.mark.slow
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


@pytest.mark.parametrize("name", ["vim", *slow(*OTHERS)])
@pytest.mark.parametrize("ours", [True, *slow(False)])
def test_the_exported_file_holds_features_buffers_and_score(
    name: str, ours: bool, trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    detector = Detector(trained if ours else Dots(), name).fit(known).calibrate(validation)
    detector.export(tmp_path / "d.onnx")
    images = noise(23, seed=5)
    found = session((tmp_path / "d.onnx").read_bytes()).run(["confidence"], {"images": images.pixels[:]})[0]
    expected = detector.predict(images).confidence
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "d.onnx").metadata_props}
    assert told["score"] == name and json.loads(told["settings"]) == detector.score.settings


@pytest.mark.slow
def test_eight_bits_are_for_the_network_and_not_for_the_score(
    trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, "knn").fit(known).calibrate(validation)
    detector.export_int8(tmp_path / "d.onnx", stripes(200, seed=12), max_drop=100)
    graph = onnx.load(tmp_path / "d.onnx").graph
    floats = {tensor.name: tensor.dims for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    (product,) = [node for node in graph.node if node.op_type == "MatMul" and node.name.startswith("score/")]
    assert list(floats[product.input[1]]) == list(detector.score.vectors.T.shape)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vim", *OTHERS])
def test_an_int8_file_holds_the_tensors_of_every_score_as_they_are(
    name: str, trained: nn.Module, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, name).fit(known).calibrate(validation)
    cost = detector.export_int8(tmp_path / "d.onnx", stripes(200, seed=12), max_drop=100)
    held = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "d.onnx").graph.initializer]
    ordered = {np.sort(tensor, axis=None).tobytes() for tensor in held if tensor.dtype == np.float32}
    kept = (buffer.numpy() for buffer in detector.score.buffers() if buffer.is_floating_point())
    for buffer in (buffer for buffer in kept if buffer.size > 1):
        assert np.sort(buffer, axis=None).tobytes() in ordered  # perhaps transposed
    found = Runtime(tmp_path / "d.onnx").predict(validation)
    assert np.isfinite(found.confidence).all() and cost.accuracy.drop < 5
