"""Choosing a score: the rule by hand, the unknown images by loops, the record in the file, errors in a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors
import torch

import macs
from cases import slow
from forging import forged
from macs import scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.runtime import session
from tiny import noise, stripes


@pytest.mark.parametrize("name", ["energy+knn+mahalanobis", *slow("msp+vim")])
def test_a_sum_is_saved_loaded_and_exported_as_one_score(
    name: Any, trained: Any, known: ImageSet, validation: ImageSet, tmp_path: Path
) -> None:
    detector = Detector(trained, scores.get(name)).fit(known, validation).calibrate(stripes(90, seed=31), keep=0.8)
    detector.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    images = noise(40, seed=3)
    expected = detector.predict(images).confidence
    np.testing.assert_array_equal(loaded.predict(images).confidence, expected)
    assert loaded.calibrated.score == name and int(loaded.score.images) == 100
    detector.export(tmp_path / "d.onnx")
    (found,) = session((tmp_path / "d.onnx").read_bytes()).run(["confidence"], {"images": images.pixels[:]})
    np.testing.assert_allclose(found, expected, atol=1e-4 * max(1.0, np.abs(expected).max()))
    told = {entry.key: entry.value for entry in onnx.load(tmp_path / "d.onnx").metadata_props}
    assert told["score"] == name and json.loads(told["settings"]) == detector.score.settings
    with pytest.raises(MacsError, match="is fitted to another network"):
        Detector(macs.nets.build("wrn-10-1", classes=3), detector.score)
    tensors = safetensors.torch.load_file(tmp_path / "d.safetensors")
    tensors["score.mean"] = torch.zeros(7)
    with pytest.raises(MacsError, match="holds a score that does not fit its network"):
        Detector.load(forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", tensors))
    del tensors["score.mean"]
    with pytest.raises(
        MacsError, match="does not fit Combined.*whose tensors are images, mean, part1.* calibrate again"
    ):
        Detector.load(forged(tmp_path / "d.safetensors", tmp_path / "forged.safetensors", tensors))


@pytest.mark.slow
def test_eight_bits_leave_a_sum_in_float32(trained: Any, known: ImageSet, validation: ImageSet, tmp_path: Path) -> None:
    detector = Detector(trained, scores.get("energy+knn")).fit(known, validation).calibrate(stripes(90, seed=31))
    detector.export_int8(tmp_path / "d.onnx", stripes(200, seed=12), max_drop=100)
    graph = onnx.load(tmp_path / "d.onnx").graph
    floats = {tensor.name: tensor.dims for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    (product,) = [node for node in graph.node if node.op_type == "MatMul" and node.name.startswith("score/")]
    assert list(floats[product.input[1]]) == list(detector.score.parts[1].vectors.T.shape)
