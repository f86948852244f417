"""Tensors of an ONNX file that are elsewhere are refused, and the calibration confidences are found."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from macs.core.errors import MacsError
from macs.detector import Detector, Runtime
from macs.detector.runtime import refuse_external_data, varint
from tiny import stripes


def test_the_runtime_knows_its_calibration_confidences(detector: Detector, tmp_path: Path) -> None:
    detector.export(tmp_path / "d.onnx")
    p_values = Runtime(tmp_path / "d.onnx").p_values
    (theirs,) = (
        numpy_helper.to_array(tensor)
        for tensor in onnx.load(tmp_path / "d.onnx").graph.initializer
        if tensor.name == "p_value.confidences"
    )
    assert detector.p_values is not None
    for expected in (theirs, detector.p_values.confidences):
        np.testing.assert_array_equal(p_values.confidences, expected)
    assert p_values.sizes == detector.p_values.sizes == (100,)
    verdicts = detector.predict(stripes(20, seed=4))
    np.testing.assert_array_equal(p_values(verdicts), verdicts.p_value)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 40_000, 2**31])
def test_numbers_are_written_as_protobuf_writes_them(number: int) -> None:
    tag, *written = TensorProto(dims=[number]).SerializeToString()
    assert tag == 0x08 and bytes(written) == varint(number)


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
    with pytest.raises(MacsError, match=r"^d\.onnx keeps tensors in other files"):
        refuse_external_data(content, "d.onnx")
    refuse_external_data(content.replace(b"location", b"locution"), "d.onnx")


@pytest.mark.parametrize("length", [b"\x88\x00", b"\x88\x80\x00", b"\x88\x80\x80\x80\x00"])
def test_external_data_with_an_overlong_number_is_found(length: bytes) -> None:
    """Protobuf reads the length of a string also where it is written with more bytes than it needs."""
    entry = b"\x0a" + length + b"location" + b"\x12\x05w.bin"
    content = b"\x6a" + varint(len(entry)) + entry + b"\x70\x01"
    (found,) = TensorProto.FromString(content).external_data
    assert (found.key, found.value) == ("location", "w.bin")
    with pytest.raises(MacsError, match="keeps tensors in other files"):
        refuse_external_data(content, "d.onnx")


def test_the_word_inside_other_texts_is_no_external_data() -> None:
    node = helper.make_node("Op", [], ["y"], name="net/location", note='{"classes": ["location", "allocation"]}')
    refuse_external_data(onnx.ModelProto(graph=in_graph(node=[node])).SerializeToString(), "d.onnx")
