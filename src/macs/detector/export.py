"""A detector as one ONNX file that needs neither macs nor torch: raw pixels, logits or features in, verdicts out.

images      uint8   N x H x W x 3    raw RGB pixels 0..255: scaling and normalisation are inside
features    float32 N x D            of rows, in place of images; and so with logits or probabilities, N x K
threshold   float32                  may be left out: the calibrated value is the default; K values if per class
index       int64   N                of the predicted class
confidence  float32 N
p_value     float32 N                by rank among the calibration confidences
is_ood      bool    N
"""

import copy
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macs import nets, scores
from macs.core import __version__
from macs.core.console import timed
from macs.core.errors import MacsError, first_line
from macs.core.files import write_atomically
from macs.data.compatibility import warn_of_guessing
from macs.detector._detector import Detector
from macs.detector._feature_detector import SMALLEST, FeatureDetector
from macs.detector.rows import Columns
from macs.detector.runtime import OUTPUTS, UNSEALED, run, seal, session
from macs.detector.saving import metadata_of, onnx_path
from macs.inference import Outputs
from macs.predictions import NO_CLASS

if TYPE_CHECKING:
    from onnx import ModelProto

log = logging.getLogger(__name__)

OPSET = 18
INPUT = "raw uint8 RGB pixels 0..255, N x H x W x 3, no normalisation"
SCORE = "score/"  # prefix of the nodes that compute score and p-value, which stay in float32 in an int8 file
TOLERANCE = 1e-3  # rounding is far below this; a larger difference means that the export went wrong


class Graph(nn.Module):
    """The computation in the file, from bytes to verdicts."""

    def __init__(self, detector: Detector | FeatureDetector) -> None:
        super().__init__()
        self.score = copy.deepcopy(detector.score).cpu()
        self.p_value = Rank(detector)

    def verdicts(self, outputs: Outputs, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Index, confidence, p-value and verdict from logits and features."""
        logits, confidence = outputs.logits, self.score(outputs)
        index = logits.argmax(dim=1) if logits.shape[1] else torch.full_like(confidence, NO_CLASS, dtype=torch.int64)
        tau = threshold[index] if threshold.ndim else threshold
        return index, confidence, self.p_value(confidence, index), ~(confidence >= tau)


class ImageGraph(Graph):
    """The same from raw pixels."""

    def __init__(self, detector: Detector) -> None:
        super().__init__(detector)
        self.net = copy.deepcopy(detector.net).cpu().float().eval()
        cast(Any, self.net).to(memory_format=torch.contiguous_format)  # torch's stub does not declare memory_format

    def forward(self, images: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pixels = images.permute(0, 3, 1, 2).float() / 255
        if self.score.reads == "features":
            features, logits = nets.features_of(self.net, pixels)
        else:
            features, logits = None, self.net(pixels)
        return self.verdicts(Outputs(logits, features), threshold)


class RowGraph(Graph):
    """The same from rows; a row with a number that is not finite gets a confidence that is NaN, and is OOD."""

    def __init__(self, detector: FeatureDetector) -> None:
        super().__init__(detector)
        self.columns = detector.accepted
        self.head = None
        if detector.head is not None:
            classes, features = detector.head[0].shape
            self.head = nn.Linear(features, classes)
            self.head.load_state_dict(dict(zip(("weight", "bias"), detector.head, strict=True)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        *arrays, threshold = inputs
        features = arrays[0] if self.columns.features else None
        logits = arrays[-1] if self.columns.logits else None
        if logits is not None and self.columns.probabilities:
            logits = logits.clamp(min=SMALLEST).log()
        elif logits is None:
            assert features is not None  # since there is always one of both
            logits = features[:, :0] if self.head is None else self.head(features)
        index, confidence, _, _ = self.verdicts(Outputs(logits, features), threshold)
        for array in arrays:
            confidence = torch.where(((array - array) == 0).all(dim=1), confidence, torch.nan)
        tau = threshold[index] if threshold.ndim else threshold
        return index, confidence, self.p_value(confidence, index), ~(confidence >= tau)


class Rank(nn.Module):
    """Conformal p-values in the form of a graph: by comparison with every calibration confidence."""

    confidences: Tensor
    groups: Tensor
    ranks: Tensor

    def __init__(self, detector: Detector | FeatureDetector) -> None:
        super().__init__()
        for name, values in rank_tensors(detector).items():
            self.register_buffer(name, torch.from_numpy(values))

    def forward(self, confidence: Tensor, index: Tensor) -> Tensor:
        below, ranks = self.confidences <= confidence[:, None], self.ranks
        if "groups" in self._buffers:
            below, ranks = below & (self.groups == index[:, None]), self.ranks[index]
        return (below.float().sum(dim=1) + 1) / ranks


def rank_tensors(detector: Detector | FeatureDetector) -> dict[str, NDArray[Any]]:
    """The buffers of `Rank`: the calibration confidences, the predicted class of each, and n + 1."""
    kept = detector.p_values
    assert kept is not None  # since the detector is calibrated
    ranks = (1 + kept.counts).astype(np.float32)
    if len(ranks) == 1:
        return {"confidences": kept.confidences, "ranks": ranks.reshape(())}
    groups = np.repeat(np.arange(len(ranks)), kept.counts)
    return {"confidences": kept.confidences, "groups": groups, "ranks": ranks}


def export(detector: Detector | FeatureDetector, path: str | Path) -> None:
    """Write the file, whole or not at all."""
    path = onnx_path(path)
    calibration = detector.calibrated
    warn_of_guessing(calibration.accuracy, len(detector.classes), calibration.data)
    content = sealed(to_onnx(detector))
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def to_onnx(detector: Detector | FeatureDetector) -> "ModelProto":
    """The graph with its description; an error unless ONNX Runtime agrees with PyTorch on random inputs."""
    what = name_of(detector)
    with timed(log, f"translating {what} to ONNX"):
        model = translated(detector)
    strip(model)
    model.producer_name, model.producer_version = "macs", __version__
    describe(model, detector)
    random = np.random.default_rng(0)
    if isinstance(detector, FeatureDetector):
        inputs = random_rows(detector.accepted, random)
        ours = detector.predict(inputs)
    else:
        inputs = {"images": random.integers(0, 256, (3, detector.size, detector.size, 3), dtype=np.uint8)}
        ours = detector.predict(inputs["images"])
    theirs = run(session(model.SerializeToString()), inputs)
    if not np.allclose(ours.confidence, theirs.confidence, rtol=TOLERANCE, atol=TOLERANCE):
        raise MacsError(
            f"The exported {what} does not answer as the network itself does (its confidence is "
            f"{theirs.confidence[0]:.4f} instead of {ours.confidence[0]:.4f}), so nothing was written."
        )
    return model


def name_of(detector: Detector | FeatureDetector) -> str:
    """What a detector is called in messages."""
    return scores.name_of(detector.score) if isinstance(detector, FeatureDetector) else nets.name_of(detector.net)


def random_rows(columns: Columns, random: np.random.Generator, count: int = 3) -> dict[str, NDArray[Any]]:
    """A few rows such as a detector takes."""
    rows = {name: random.normal(size=(count, width)).astype(np.float32) for name, width in columns.takes.items()}
    if columns.probabilities:
        powers = np.exp(rows["probabilities"])
        rows["probabilities"] = powers / powers.sum(axis=1, keepdims=True)
    return rows


def translated(detector: Detector | FeatureDetector) -> "ModelProto":
    """The graph as torch exports it, with images or rows and the threshold as its inputs."""
    threshold, batch = torch.tensor(detector.thresholds()), {0: torch.export.Dim("batch")}
    graph: Graph
    shapes: Any
    if isinstance(detector, FeatureDetector):
        rows = random_rows(detector.accepted, np.random.default_rng(0))
        graph, names = RowGraph(detector), [*rows]
        example = (*map(torch.from_numpy, rows.values()), threshold)
        shapes = ((*[batch] * len(rows), None),)
    else:
        graph, names = ImageGraph(detector), ["images"]
        example = (torch.zeros(2, detector.size, detector.size, 3, dtype=torch.uint8), threshold)
        shapes = (batch, None)
    try:
        with quiet():
            program = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                opset_version=OPSET,
                external_data=False,
                verbose=False,
                input_names=[*names, "threshold"],
                output_names=[*OUTPUTS],
                dynamic_shapes=shapes,
            )
            assert program is not None
            return program.model_proto
    except Exception as error:  # torch.export raises nearly anything on a network that it cannot trace
        reason = first_line(error.__cause__ or error)
        raise MacsError(f"torch cannot export {name_of(detector)} to ONNX: {reason}.") from error


def describe(model: "ModelProto", detector: Detector | FeatureDetector, precision: str = "float32") -> None:
    """Store the threshold, the calibration confidences and the metadata in an exported graph."""
    from onnx import helper, numpy_helper

    graph = model.graph
    # An input that is also an initializer may be left out, and then has the initializer's value.
    values = {"threshold": detector.thresholds()}
    values |= {f"p_value.{name}": value for name, value in rank_tensors(detector).items()}
    others = [tensor for tensor in graph.initializer if tensor.name not in values]
    del graph.initializer[:]
    graph.initializer.extend([*others, *(numpy_helper.from_array(value, name) for name, value in values.items())])
    helper.set_model_props(model, {**description(detector), "precision": precision})


def description(detector: Detector | FeatureDetector) -> dict[str, str]:
    """The metadata of the file, in words and in JSON."""
    if isinstance(detector, FeatureDetector):
        of = {"input": f"float32 {detector.accepted}", "net": ""}
    else:
        of = {
            "input": INPUT,
            "preparation": detector.preparation.describe(),
            "preparation.json": json.dumps(detector.preparation.as_dict()),
            "net": nets.name_of(detector.net),
        }
    return of | {
        "output": (
            "index: number of the class; confidence: higher means ID; is_ood: confidence < threshold; "
            "p_value: share of calibration inputs, this one counted, that are at most as confident"
        ),
        "threshold": "optional input; its default is the calibrated value",
        "classes": json.dumps(detector.classes),
        "score": scores.name_of(detector.score),
        "settings": json.dumps(detector.score.settings),
        "calibration": json.dumps(detector.calibrated.as_dict()),
        "macs": __version__,
        "label": json.dumps(metadata_of(detector).as_dict()),
        "sha256": UNSEALED,
    }


def sealed(model: "ModelProto") -> bytes:
    """The bytes of the file, with their checksum in the place that was reserved for it."""
    content: bytes = model.SerializeToString()
    return content.replace(UNSEALED.encode(), seal(content).encode())


def strip(model: "ModelProto") -> None:
    """Remove the exporter's own notes, which are longer than the graph and contain paths of this machine.

    Before that, the nodes of score and p-value get names that begin with SCORE.
    """
    graph = model.graph
    for node in graph.node:
        scopes = next((note.value for note in node.metadata_props if note.key == "pkg.torch.onnx.name_scopes"), "")
        if "'score'" in scopes or "'p_value'" in scopes:
            node.name = f"{SCORE}{node.name}"
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
    for node in graph.node:
        node.doc_string = ""
    del graph.value_info[:]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the exporter's messages about optional packages and its own deprecations."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
