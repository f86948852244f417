"""The tensors of an ONNX file as our reader finds them, beside what the onnx package finds."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from macs.detector import Detector, Runtime
from macs.detector.onnx_tensors import INSIDE, has_external_data, tensors
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


def constant(name: str = "c", external: bool = True) -> TensorProto:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), name)
    if external:
        set_external_data(tensor, "elsewhere.bin")
        tensor.ClearField("raw_data")
    return tensor


def attribute(value: Any) -> onnx.NodeProto:
    return helper.make_node("Op", [], ["y"], value=value)


def in_graph(**parts: Any) -> onnx.GraphProto:
    return onnx.GraphProto(name="g", **parts)


def sparse(part: str) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(**{part: constant()})


def branch(graph: onnx.GraphProto, depth: int = 20) -> onnx.GraphProto:
    """The graph inside an attribute of a node of a graph, and so on."""
    for _ in range(depth):
        graph = in_graph(node=[attribute(graph)])
    return graph


EXTERNAL = {
    "initializer": onnx.ModelProto(graph=in_graph(initializer=[constant("a", external=False), constant()])),
    "sparse values": onnx.ModelProto(graph=in_graph(sparse_initializer=[sparse("values")])),
    "sparse indices": onnx.ModelProto(graph=in_graph(sparse_initializer=[sparse("indices")])),
    "attribute": onnx.ModelProto(graph=in_graph(node=[attribute(constant())])),
    "attribute of several": onnx.ModelProto(graph=in_graph(node=[attribute([constant("a", False), constant()])])),
    "sparse attribute": onnx.ModelProto(graph=in_graph(node=[attribute(sparse("values"))])),
    "sparse attribute of several": onnx.ModelProto(graph=in_graph(node=[attribute([sparse("values")])])),
    "nested graph": onnx.ModelProto(graph=branch(in_graph(initializer=[constant()]))),
    "nested graphs": onnx.ModelProto(graph=in_graph(node=[attribute([in_graph(initializer=[constant()])])])),
    "function": onnx.ModelProto(functions=[onnx.FunctionProto(node=[attribute(constant())])]),
    "default of a function": onnx.ModelProto(
        functions=[onnx.FunctionProto(attribute_proto=[helper.make_attribute("a", constant())])]
    ),
    "training": onnx.ModelProto(training_info=[onnx.TrainingInfoProto(algorithm=in_graph(initializer=[constant()]))]),
}


@pytest.mark.parametrize("where", EXTERNAL)
def test_external_data_is_found_wherever_it_is(where: str) -> None:
    content = EXTERNAL[where].SerializeToString()
    assert has_external_data(content)
    assert not has_external_data(content.replace(b"\x70\x01", b"\x70\x00"))  # data_location = DEFAULT


def test_every_message_that_may_hold_a_tensor_is_searched() -> None:
    """Our map of messages beside the onnx package's own."""
    kinds = {"model": "Model", "training": "TrainingInfo", "function": "Function", "graph": "Graph", "node": "Node"}
    kinds |= {"attribute": "Attribute", "sparse": "SparseTensor", "tensor": "Tensor"}
    theirs = {f"{name}Proto": kind for kind, name in kinds.items()}
    for kind, inside in INSIDE.items():
        fields = getattr(onnx, f"{kinds[kind]}Proto").DESCRIPTOR.fields
        assert inside == {
            field.number: theirs[field.message_type.name]
            for field in fields
            if field.message_type is not None and field.message_type.name in theirs
        }


@pytest.mark.parametrize(
    "content",
    [
        b"\xba\x80\x80\x80\x70\x00",  # field 7 with bits beyond the 32nd, which protobuf drops
        b"\x80" * 1000,  # a number without an end
        b"\x3b\x3c",  # a group, which ONNX does not use
        b"hello",
    ],
)
def test_what_protobuf_might_read_otherwise_is_no_file_of_ours(content: bytes) -> None:
    with pytest.raises((KeyError, ValueError, IndexError)):
        has_external_data(content)
