"""Runtime: runs an exported detector with ONNX Runtime. It needs numpy, Pillow and rich, but not torch.

detector = macs.Runtime("detector.onnx")  # of images; macs.FeatureRuntime: of logits and features
detector.predict(images).is_ood
for row in detector.predict_files("photos/"): ...
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import input_file
from macs.core.registry import unknown
from macs.data.preparation import Preparation
from macs.detector.base import Ask, BaseDetector, ImageDetector
from macs.detector.calibration import Calibration, PValues
from macs.detector.hub import ONNX, local_file
from macs.detector.metadata import DetectorMetadata, recognise
from macs.detector.row_detector import RowDetector
from macs.detector.rows import Columns
from macs.predictions import Predictions

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

log = logging.getLogger(__name__)

OUTPUTS = ("index", "confidence", "p_value", "is_ood")
FORMER_INDEX = "label"  # the name of the output `index` in files of macs 0.1.0
UNSEALED = "?" * 64  # takes the place of the checksum until that is computed
CONFIDENCES = "p_value.confidences"  # the tensor of the file that p-values are computed from
CPU = "CPUExecutionProvider"


class OnnxDetector(BaseDetector):
    """An exported detector: the session that runs it, and what its file says of it."""

    def __init__(self, path: str | Path, *, providers: str | Sequence[str] = (), threads: int = 0) -> None:
        """Read a file that `macs export` wrote, or hf://org/name from the hub; no code from it is run.

        `providers` are execution providers of ONNX Runtime in order of preference (CUDA, OpenVINO, CoreML, ...), by
        default the CPU; with `threads` 0, ONNX Runtime decides on their number.
        """
        chosen = execution_providers([providers] if isinstance(providers, str) else providers)
        self.path: Path = input_file(local_file(path, [ONNX]), "exported detector", "make one with: macs export")
        content = self.path.read_bytes()
        try:
            refuse_external_data(content, path)
            self.session: InferenceSession = session(content, chosen, threads)
            properties = self.session.get_modelmeta().custom_metadata_map
        except MacsError:
            raise
        except Exception:  # ONNX Runtime raises errors of many kinds, some longer than a page
            raise MacsError(f"{path} is damaged or not an ONNX file; export it again with: macs export.") from None
        self.metadata: DetectorMetadata = metadata_in(properties, content, path)
        self.classes: tuple[str, ...] = self.metadata.classes
        self.calibration: Calibration = self.metadata.calibration
        self.sha256: str = seal(content)
        log.info("%s is an exported detector, checksum %s", self.path.absolute(), self.sha256)
        log.info(
            "ONNX Runtime %s runs it on %s, %s threads",
            silent_onnxruntime().__version__,
            ", ".join(map(short_name, self.session.get_providers())),
            threads or "its own number of",
        )
        self.p_values: PValues = p_values_in(content, self.calibration, path)
        self.accept()

    def accept(self) -> None:
        """Set what a subclass needs of the metadata; raise if the file is of the other kind."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"


class Runtime(OnnxDetector, ImageDetector):
    """An exported detector of images, with the methods of `macs.Detector` that give verdicts."""

    def accept(self) -> None:
        self.preparation: Preparation = self.metadata.for_images(self.path)

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        yield lambda batch: run(self.session, {"images": batch})


class FeatureRuntime(OnnxDetector, RowDetector):
    """An exported detector of rows, with the methods of `macs.FeatureDetector` that give verdicts.

    Examples
    --------
    >>> import macs, numpy as np
    >>> logits = np.random.default_rng(0).normal(size=(300, 5))
    >>> macs.FeatureDetector("energy").calibrate(logits=logits).export("d.onnx")
    >>> macs.FeatureRuntime("d.onnx").predict(logits=logits).is_ood.shape
    (300,)
    """

    def accept(self) -> None:
        self.columns: Columns = self.metadata.for_rows(self.path)

    def answer(self, features: NDArray[np.float32] | None, logits: NDArray[np.float32] | None) -> Predictions:
        arrays = {"features": features, self.columns.second: logits}
        return run(self.session, {name: array for name, array in arrays.items() if array is not None})


def open_onnx(path: str | Path, *, providers: str | Sequence[str] = (), threads: int = 0) -> Runtime | FeatureRuntime:
    """An exported detector, whichever kind it is; its network is loaded once."""
    opened = OnnxDetector(path, providers=providers, threads=threads)
    kind: type[Runtime | FeatureRuntime] = FeatureRuntime if opened.metadata.columns else Runtime
    runtime = kind.__new__(kind)
    vars(runtime).update(vars(opened))
    runtime.accept()
    return runtime


def refuse_external_data(content: bytes, path: str | Path) -> None:
    """Raise if a file lacks some of its tensors: ONNX Runtime would read the rest from other files or from memory.

    Such a tensor has an entry with the key "location", a string of 8 bytes. In protobuf the length stands before a
    string, as the byte 8 or, in a longer form of the same number, as bytes of which the last is 0. No node, class or
    setting of ours has this string as its whole name, so nothing else looks like that.
    """
    if b"\x08location" in content or b"\x00location" in content:
        raise MacsError(f"{path} keeps tensors in other files, which no checksum covers; make one with: macs export.")


def session(content: bytes, providers: Sequence[str] = (CPU,), threads: int = 0) -> "InferenceSession":
    """A session of ONNX Runtime, without its warning that the threshold is both an input and a constant.

    Its threads sleep while they wait. By default they would spin, on the cores that decode the next files.
    """
    onnxruntime = silent_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.load_model_format", "ONNX")  # not ORT's own, which we could not check
    made: InferenceSession = onnxruntime.InferenceSession(content, options, providers=list(providers))
    return made


def silent_onnxruntime() -> Any:
    """ONNX Runtime, which from version 1.29 on tells its makers of every model that is loaded, unless told not to."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # is read when the package is first imported
    import onnxruntime

    return onnxruntime


def run(onnx: "InferenceSession", inputs: Mapping[str, NDArray[Any]]) -> Predictions:
    """Return the predictions for a batch; the caller makes verdicts of them, perhaps with another threshold."""
    names = [output.name for output in onnx.get_outputs()]
    index = OUTPUTS[0] if OUTPUTS[0] in names else FORMER_INDEX
    return Predictions(*onnx.run([index, "confidence", "p_value"], inputs))


def execution_providers(wanted: Sequence[str]) -> list[str]:
    """The full names of execution providers; an error if this ONNX Runtime does not have one of them."""
    if find_spec("onnxruntime") is None:
        raise MacsError("An exported detector is run by ONNX Runtime: pip install onnxruntime.")
    available = {short_name(name): name for name in silent_onnxruntime().get_available_providers()}
    for name in map(short_name, wanted):
        if name not in available:
            error = unknown("execution provider of this ONNX Runtime", name, sorted(available))
            raise MacsError(f"{error} Others come with packages such as onnxruntime-gpu and onnxruntime-openvino.")
    return [available[short_name(name)] for name in wanted] or [CPU]


def short_name(provider: str) -> str:
    """The short name of an execution provider, for example cuda for CUDAExecutionProvider."""
    return provider.removesuffix("ExecutionProvider").lower()


def metadata_in(properties: dict[str, str], content: bytes, path: str | Path) -> DetectorMetadata:
    """Return the metadata of an ONNX file; raise if it was changed since it was exported."""
    if "label" not in properties:
        raise MacsError(f"{path} is an ONNX file, but not a detector; make one with: macs export.")
    try:
        values = json.loads(properties["label"])
    except (ValueError, RecursionError):
        values = None
    recognise(values, path)
    recorded = properties.get("sha256", "")
    if len(recorded) != len(UNSEALED) or recorded != seal(content.replace(recorded.encode(), UNSEALED.encode())):
        raise MacsError(f"{path} was changed after it was exported: its checksum does not match; export it again.")
    return DetectorMetadata.from_json(values, path)


def p_values_in(content: bytes, calibration: Calibration, path: str | Path) -> PValues:
    """Return the calibration confidences that the graph compares with, which ONNX Runtime does not hand out.

    In the file they follow the name of their tensor, the tag of `raw_data` (field 9) and their length in bytes.
    """
    count = sum(calibration.ranked)
    before = CONFIDENCES.encode() + b"\x4a" + varint(4 * count)
    start = content.find(before) + len(before)
    if start < len(before) or len(content) < start + 4 * count:
        raise MacsError(f"{path} holds calibration confidences that macs did not write; export it again.")
    return PValues(np.frombuffer(content, "<f4", count, start).astype(np.float32), np.array(calibration.ranked))


def varint(number: int) -> bytes:
    """Encode a number as protobuf does, in groups of seven bits, the lowest first."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def seal(content: bytes) -> str:
    """The checksum of a file; of one that is to be sealed, with UNSEALED in its place."""
    return hashlib.sha256(content).hexdigest()
