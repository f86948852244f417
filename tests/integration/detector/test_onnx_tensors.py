"""The tensors of an ONNX file as our reader finds them, beside what the onnx package finds."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from macs.detector import Detector, Runtime
from macs.detector.onnx_tensors import tensors
from tiny import stripes


@pytest.mark.slow
def test_every_constant_of_an_exported_detector(detector: Detector, tmp_path: Path) -> None:
    detector.export(tmp_path / "d.onnx")
    theirs = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "d.onnx").graph.initializer}
    ours = tensors((tmp_path / "d.onnx").read_bytes(), list(theirs))
    assert "p_value.confidences" in ours and ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name])
        assert value.shape == theirs[name].shape and value.dtype == theirs[name].dtype


def test_the_runtime_knows_its_calibration_confidences(detector: Detector, tmp_path: Path) -> None:
    detector.export(tmp_path / "d.onnx")
    reference = Runtime(tmp_path / "d.onnx").reference
    np.testing.assert_array_equal(reference.confidences, detector.reference.confidences)
    assert reference.sizes == detector.reference.sizes == (100,)
    answers = detector.predict(stripes(20, seed=4))
    np.testing.assert_array_equal(reference.p_values(answers), answers.p_values)


def test_only_what_is_asked_for_and_raw_is_read() -> None:
    raw = numpy_helper.from_array(np.arange(6, dtype=np.int64).reshape(2, 3), "raw")
    listed = helper.make_tensor("listed", TensorProto.FLOAT, [2], [1.0, 2.0])  # its values are not raw data
    half = numpy_helper.from_array(np.ones(2, np.float16), "half")  # a type that we do not read
    content = onnx.ModelProto(graph=onnx.GraphProto(initializer=[raw, listed, half])).SerializeToString()
    assert tensors(content, ["listed", "half", "missing"]) == {}
    found = tensors(content, ["raw", "listed"])
    np.testing.assert_array_equal(found["raw"], [[0, 1, 2], [3, 4, 5]])
    assert list(found) == ["raw"] and tensors(b"", ["raw"]) == {}
