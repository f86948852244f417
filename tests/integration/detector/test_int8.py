"""Eight bits: what they cost is measured on other images than gave the ranges, and decides whether they are written."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector, int8
from macs.detector.export import to_onnx
from macs.detector.runtime import session
from macs.metrics import ood_metrics
from tiny import noise, stripes

QUANTISE = int8.quantise  # itself: below it is replaced by one that remembers


@pytest.fixture(scope="module")
def labelled() -> ImageSet:
    return stripes(200, seed=12)


@pytest.fixture(scope="module")
def unknown() -> ImageSet:
    return noise(80, seed=13)


@pytest.fixture(scope="module", autouse=True)
def exported_once() -> Iterator[None]:
    """One export and one quantisation for all tests: they take seconds, and are of the same detector each time."""
    made: dict[Callable[..., Any], Any] = {}

    def once(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            if real not in made:
                made[real] = real(*given)
            return copy.deepcopy(made[real])

        return call

    with pytest.MonkeyPatch.context() as patch:
        for function in (to_onnx, int8.quantise):
            patch.setattr(int8, function.__name__, once(function))
        yield


@pytest.fixture(scope="module")
def small(
    detector: Detector, labelled: ImageSet, unknown: ImageSet, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, int8.Quantised]:
    path = tmp_path_factory.mktemp("int8") / "d.onnx"
    return path, detector.export_int8(path, labelled, {"noise": unknown}, max_drop=5)


def test_the_measured_costs_are_those_of_the_written_file(
    small: tuple[Path, int8.Quantised], detector: Detector, labelled: ImageSet, unknown: ImageSet
) -> None:
    path, result = small
    _, rest = labelled.split(100)
    found = session(path.read_bytes())
    label, confidence, *_ = found.run(None, {"images": rest.pixels[:]})
    _, other, *_ = found.run(None, {"images": unknown.pixels[:]})
    assert result.images == 100
    assert result.accuracy.int8 == np.mean(label == rest.labels)
    assert result.auroc["noise"].int8 == pytest.approx(ood_metrics(confidence, other).auroc, abs=1e-4)
    float32 = detector.predict(rest)
    assert result.accuracy.float32 == np.mean(float32.index == rest.labels)
    assert np.abs(confidence - float32.confidence).mean() < 0.1


def test_kept_labels_and_verdicts_are_counted_over_all_images(
    small: tuple[Path, int8.Quantised], detector: Detector, labelled: ImageSet, unknown: ImageSet
) -> None:
    path, result = small
    pixels = np.concatenate([labelled.split(100)[1].pixels[:], unknown.pixels[:]])
    label, _, _, is_ood = session(path.read_bytes()).run(None, {"images": pixels})
    float32 = detector.predict(ImageSet.from_array(pixels))
    one = 1.5 / len(pixels)  # an image at the threshold itself may fall on either side in a batch of another size
    assert result.same_label == pytest.approx(np.mean(label == float32.index), abs=one)
    assert result.same_verdict == pytest.approx(np.mean(is_ood == float32.is_ood), abs=one)
    assert 0.5 < result.same_verdict < 1  # so that a comparison of a network with itself would be seen


def test_the_threshold_is_calibrated_anew_on_images_that_gave_no_ranges(
    small: tuple[Path, int8.Quantised], detector: Detector, labelled: ImageSet
) -> None:
    path, result = small
    rest = labelled.split(100)[1]
    _, confidence, p_value, is_ood = session(path.read_bytes()).run(None, {"images": rest.pixels[:]})
    tau = np.sort(confidence)[101 // 10 - 1]
    assert result.calibration.thresholds[0].value == pytest.approx(tau, abs=1e-6)
    assert result.calibration.keep == detector.calibrated.keep
    assert is_ood.sum() <= 101 // 10 - 1
    ranks = [(1 + np.count_nonzero(confidence <= each)) / 101 for each in confidence]
    np.testing.assert_allclose(p_value, ranks, atol=0.02)  # of the same images, in batches of other sizes
    told = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert told["precision"] == "int8"
    assert json.loads(told["calibration"])["thresholds"][0]["value"] == result.calibration.thresholds[0].value


def test_layers_are_integers_and_the_file_is_a_quarter(small: tuple[Path, int8.Quantised]) -> None:
    path, result = small
    model = onnx.load(path)
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    dequantised = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 9
    for node in convolutions:
        assert held[dequantised[node.input[1]]].data_type == onnx.TensorProto.INT8
    assert path.stat().st_size == result.bytes_int8 < 0.5 * result.bytes_float32
    (optional,) = session(path.read_bytes()).get_overridable_initializers()
    assert optional.name == "threshold"


def test_beyond_the_limit_nothing_is_written(
    detector: Detector, labelled: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = int8.answers

    def worse(model: onnx.ModelProto, images: ImageSet, *rest: Any) -> Any:
        found = real(model, images, *rest)
        if any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            found.index[:] = 0
        return found

    monkeypatch.setattr(int8, "answers", worse)
    with pytest.raises(MacsError, match=r"points of accuracy, more than the 0.5 allowed, so .*d\.onnx was not written"):
        detector.export_int8(tmp_path / "d.onnx", labelled)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("max_drop", [float("nan"), float("inf"), -1, 101])
def test_a_limit_that_would_switch_the_guard_off_is_refused(
    detector: Detector, labelled: ImageSet, tmp_path: Path, max_drop: float
) -> None:
    with pytest.raises(MacsError, match="may cost must be at least 0 and at most 100"):
        detector.export_int8(tmp_path / "d.onnx", labelled, max_drop=max_drop)


def test_a_drop_of_auroc_counts_too(
    detector: Detector, labelled: ImageSet, unknown: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = int8.answers

    def worse(model: onnx.ModelProto, images: ImageSet, *rest: Any) -> Any:
        found = real(model, images, *rest)
        if images.name == "noise" and any(node.op_type == "QuantizeLinear" for node in model.graph.node):
            found.confidence[:] = 1
        return found

    monkeypatch.setattr(int8, "answers", worse)
    with pytest.raises(MacsError, match="points of AUROC against noise"):
        detector.export_int8(tmp_path / "d.onnx", labelled, {"noise": unknown}, max_drop=5)
    assert not list(tmp_path.iterdir())


def test_images_that_cannot_measure_it_are_refused(detector: Detector, unknown: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="noise must be labelled"):
        detector.export_int8(tmp_path / "d.onnx", unknown)
    with pytest.raises(MacsError, match="stripes has 1"):
        detector.export_int8(tmp_path / "d.onnx", stripes(1, seed=0))


def test_the_result_in_words(small: tuple[Path, int8.Quantised]) -> None:
    text = str(small[1])
    for words in ("accuracy", "AUROC against noise", "points", "keep their label", "their verdict", "MB", "k = 10"):
        assert words in text
    json.dumps(small[1].as_dict())


LARGE = """
import resource, sys
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from macs.data import ImageSet
from macs.detector.int8 import quantise

layers, channels, edge = 24, 8, 224
value = helper.make_tensor_value_info
weights = [np.full((channels, channels if i else 3, 3, 3), 0.01, np.float32) for i in range(layers)]
graph = helper.make_graph(
    [
        helper.make_node("Cast", ["images"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["float"], ["layer0"], perm=[0, 3, 1, 2]),
        *(
            helper.make_node("Conv", [f"layer{i}", f"weight{i}"], [f"layer{i + 1}"], f"conv{i}", pads=[1] * 4)
            for i in range(layers)
        ),
        helper.make_node("ReduceMean", [f"layer{layers}"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["mean", "threshold"], ["margin"]),
    ],
    "large",
    [value("images", TensorProto.UINT8, ["n", edge, edge, 3]), value("threshold", TensorProto.FLOAT, [])],
    [value("margin", TensorProto.FLOAT, [])],
    [
        numpy_helper.from_array(np.float32(0), "threshold"),
        *(numpy_helper.from_array(weight, f"weight{i}") for i, weight in enumerate(weights)),
    ],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
images = ImageSet.from_array(np.random.default_rng(0).integers(0, 256, (32, edge, edge, 3), dtype=np.uint8))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
quantise(model, images)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count the memory in other units")
def test_ranges_of_large_images_take_little_memory() -> None:
    """The activations of all 24 layers for 32 images of 224 pixels would take 1.2 GB."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 700_000  # KiB, of which the quantiser itself takes about half


def test_a_clipped_activation_is_quantised_within_its_limits() -> None:
    """Before this ReLU6 values range over 1,530, so that 256 steps of these would leave two of what is behind it."""
    value, edge = onnx.helper.make_tensor_value_info, 8
    weights = np.array([[3, -2, -1], [-3, 2, 1], [3, -3, 0]], np.float32)[:, :, None, None]  # exact in 7 bits
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("Cast", ["images"], ["float"], to=onnx.TensorProto.FLOAT),
            onnx.helper.make_node("Transpose", ["float"], ["pixels"], perm=[0, 3, 1, 2]),
            onnx.helper.make_node("Conv", ["pixels", "weights"], ["wide"], "conv"),
            onnx.helper.make_node("Clip", ["wide", "low", "high"], ["narrow"], "relu6"),
            onnx.helper.make_node("Conv", ["narrow", "ones"], ["sums"], "sum"),
            onnx.helper.make_node("ReduceMean", ["sums", "space"], ["means"], keepdims=0),
            onnx.helper.make_node("Sub", ["means", "threshold"], ["margin"]),
        ],
        "clipped",
        [value("images", onnx.TensorProto.UINT8, ["n", edge, edge, 3]), value("threshold", onnx.TensorProto.FLOAT, [])],
        [value("margin", onnx.TensorProto.FLOAT, ["n"])],
        [
            onnx.numpy_helper.from_array(np.asarray(array), name)
            for name, array in {
                "threshold": np.float32(0),
                "weights": weights,
                "low": np.float32(0),
                "high": np.float32(6),
                "ones": np.ones((1, 3, 1, 1), np.float32),
                "space": np.array([1, 2, 3]),
            }.items()
        ],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    pixels = np.random.default_rng(0).integers(100, 103, (64, edge, edge, 3), dtype=np.uint8)
    pixels[0, 0] = [[255, 0, 0]]  # the widest values
    pixels[0, 1] = [[0, 255, 255]]
    small = session(QUANTISE(model, ImageSet.from_array(pixels)).SerializeToString())
    (found,) = small.run(None, {"images": pixels})
    exact = (pixels.astype(np.float32) @ weights[:, :, 0, 0].T).clip(0, 6).sum(axis=-1).mean(axis=(1, 2))
    np.testing.assert_allclose(found, exact, atol=0.1)
