"""The exported detector in 8-bit integers: a quarter of the size, written only if it is nearly as good.

Static quantisation: weights per channel, activations per tensor, with ranges from ID images. The 8-bit network is a
different network, so its threshold is calibrated again, to keep the same share of images that gave no ranges.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs.core.errors import MacsError
from macs.core.files import write_atomically
from macs.data import ImageSet
from macs.data.batches import batches_of
from macs.data.compatibility import same_classes, warn_of_guessing
from macs.detector._detector import Detector
from macs.detector.calibration import Calibration, PValues, calibrate
from macs.detector.export import SCORE, describe, quiet, sealed, strip, to_onnx
from macs.detector.runtime import run, session, silent_onnxruntime
from macs.detector.saving import allowed_drop, onnx_path
from macs.metrics import ood_metrics
from macs.predictions import Predictions, joined
from macs.scores import name_of

if TYPE_CHECKING:
    from onnx import ModelProto

RANGES = 256  # images that give the ranges of activations; at most half of all images
BATCH = 32
# ONNX Runtime keeps every activation of a batch until the last layer's range is known: some 2 kB per pixel, 3.4 GB for
# 32 images of 224 pixels in an EfficientNet-Lite0. So larger images pass in smaller batches.
PIXELS = 2**18
# With Clip, a ReLU6 gives the range of the convolution before it; without it, that is many times as wide.
OPERATORS = ["Conv", "Gemm", "MatMul", "Add", "Relu", "Clip"]


@dataclass(frozen=True)
class Change:
    """A share in [0, 1] before and after quantisation."""

    float32: float
    int8: float

    @property
    def drop(self) -> float:
        """The loss in points."""
        return 100 * (self.float32 - self.int8)

    def __str__(self) -> str:
        return f"{self.float32:.2%} -> {self.int8:.2%} ({-self.drop:+.2f} points)"


@dataclass(frozen=True)
class Quantised:
    """The cost of 8 bits, measured on images that gave no ranges, and the calibration in the file."""

    images: int
    accuracy: Change
    auroc: dict[str, Change]
    same_label: float  # share of the images, OOD sets included, that get the label that they have in float32
    same_verdict: float  # share that gets the same verdict, each network with its own threshold
    bytes_float32: int
    bytes_int8: int
    calibration: Calibration

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        size = f"{self.bytes_float32 / 1e6:.2f} MB -> {self.bytes_int8 / 1e6:.2f} MB"
        lines = [f"float32 -> int8 on {self.images:,} images:", f"  accuracy {self.accuracy}"]
        lines += [f"  AUROC against {name} {change}" for name, change in self.auroc.items()]
        lines.append(f"  {self.same_label:.2%} of all images keep their label, {self.same_verdict:.2%} their verdict")
        return "\n".join([*lines, f"  size {size}", str(self.calibration)])


def export_int8(
    detector: Detector,
    path: str | Path,
    images: ImageSet,
    ood: Mapping[str, ImageSet],
    max_drop: float = 0.5,
    progress: bool = False,
) -> Quantised:
    """Quantise, measure, and write the file unless accuracy or an AUROC falls by more than `max_drop` points."""
    path, _ = onnx_path(path), allowed_drop(max_drop)
    if images.labels is None:
        raise MacsError(f"int8 is measured by accuracy, so {images.name} must be labelled with the detector's classes.")
    same_classes(images, detector.classes, "the detector has")
    if len(images) < 2:
        raise MacsError(f"int8 needs images for its ranges and others to measure on; {images.name} has {len(images)}.")
    for_ranges, rest = images.resized(detector.preparation).split(min(RANGES, len(images) // 2))

    whole = to_onnx(detector)
    small = quantise(whole, for_ranges)
    known = [answers(model, rest, progress) for model in (whole, small)]
    unknown = {
        name: [answers(model, unknowns.resized(detector.preparation), progress) for model in (whole, small)]
        for name, unknowns in ood.items()
    }
    accuracy = Change(*(float((answered.index == rest.labels).mean()) for answered in known))
    auroc = {
        name: Change(*(ood_metrics(a.confidence, b.confidence).auroc for a, b in zip(known, both, strict=True)))
        for name, both in unknown.items()
    }
    warn_of_guessing(accuracy.float32, len(detector.classes), images.name)
    for what, change in {"accuracy": accuracy, **{f"AUROC against {name}": c for name, c in auroc.items()}}.items():
        if change.drop > max_drop:
            raise MacsError(
                f"int8 costs {change.drop:.2f} points of {what}, more than the {max_drop:g} allowed, so {path} was not "
                "written; allow more with --max-drop, or export without --int8."
            )

    per_class = detector.calibrated.per_class
    p_values = PValues.of(known[1], len(detector.classes), per_class)
    record = calibrate(
        known[1].confidence,
        known[1].index,
        rest.labels,
        detector.classes,
        keep=detector.calibrated.keep,
        per_class=per_class,
        score=name_of(detector.score),
        data=images.name,
        ranked=p_values.sizes,
    )
    tuned = replace(detector, calibration=record, p_values=p_values)
    passing = {
        name: 1 - float(tuned.judge(in_8_bits, tuned.thresholds()).is_ood.mean())
        for name, (_, in_8_bits) in unknown.items()
    }
    tuned = replace(tuned, calibration=replace(record, passing=passing))
    before, after = (
        each.judge(joined(answered), each.thresholds())
        for each, answered in zip((detector, tuned), zip(known, *unknown.values(), strict=True), strict=True)
    )
    same = {"same_label": before.index == after.index, "same_verdict": before.is_ood == after.is_ood}
    describe(small, tuned, precision="int8")
    content = sealed(small)
    write_atomically(path, lambda temporary: temporary.write_bytes(content))
    return Quantised(
        len(rest),
        accuracy,
        auroc,
        **{what: float(equal.mean()) for what, equal in same.items()},
        bytes_float32=whole.ByteSize(),
        bytes_int8=len(content),
        calibration=tuned.calibrated,
    )


def quantise(model: "ModelProto", images: ImageSet) -> "ModelProto":
    """The graph with its layers in 8 bits; scaling, normalisation and score stay in float32."""
    import onnx

    silent_onnxruntime()
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = batches_of(images, max(1, min(BATCH, PIXELS // images.size**2)))

        def get_next(self) -> dict[str, Any] | None:
            batch = next(self.batches, None)
            return None if batch is None else {"images": batch}

    source = onnx.ModelProto()
    source.CopyFrom(model)
    unshare(source)
    # Until the end the threshold is a constant only: the quantiser's own session would warn of an input as well.
    threshold = next(value for value in source.graph.input if value.name == "threshold")
    source.graph.input.remove(threshold)
    with tempfile.TemporaryDirectory() as folder, quiet():
        whole, small = Path(folder) / "float32.onnx", Path(folder) / "int8.onnx"
        onnx.save(source, whole)
        quantize_static(
            whole,
            small,
            Reader(),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=[node.name for node in source.graph.node if node.name.startswith(SCORE)],
            per_channel=True,
            weight_type=QuantType.QInt8,
            activation_type=QuantType.QUInt8,
            # 7 bits for weights: products of 8 overflow on CPUs without VNNI, and the threshold would not hold there.
            reduce_range=True,
        )
        made = onnx.load(small)
    made.graph.input.append(threshold)
    strip(made)
    return made


def unshare(model: "ModelProto") -> None:
    """Give the score copies of the constants that it shares with the network, since the network's become integers.

    The exporter stores equal tensors once, such as the weights of the last layer, which some scores keep as well.
    """
    nodes = model.graph.node
    of_network = {name for node in nodes if not node.name.startswith(SCORE) for name in node.input}
    copies = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in of_network}
    for node in (node for node in nodes if node.name.startswith(SCORE)):
        for place, name in enumerate(node.input):
            if name in copies:
                node.input[place] = f"{SCORE}{name}"
    used = {name for node in nodes for name in node.input}
    for name, tensor in copies.items():
        if f"{SCORE}{name}" in used:
            model.graph.initializer.add().CopyFrom(tensor)
            model.graph.initializer[-1].name = f"{SCORE}{name}"


def answers(model: "ModelProto", images: ImageSet, progress: bool) -> Predictions:
    """Return the predictions of an exported detector for a set of images."""
    onnx = session(model.SerializeToString())
    return joined(run(onnx, {"images": batch}) for batch in batches_of(images, BATCH, progress=progress))
