"""Runtime: runs an exported detector with ONNX Runtime. It needs numpy, Pillow and rich, but not torch.

detector = macs.Runtime("detector.onnx")
detector.predict(images).is_ood
for row in detector.predict_files("photos/"): ...
"""

import hashlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
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
from macs.detector.calibration import Calibration
from macs.detector.judge import Ask, Judge
from macs.detector.label import DetectorLabel, read_label, recognise
from macs.detector.onnx_tensors import has_external_data, tensors
from macs.detector.reference import Reference
from macs.detector.verdicts import RankedAnswers

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

log = logging.getLogger(__name__)

OUTPUTS = ("label", "confidence", "p_value", "is_ood")
UNSEALED = "?" * 64  # takes the place of the checksum until that is computed
CONFIDENCES = "p_value.confidences"  # the tensor of the file that p-values are computed from
CPU = "CPUExecutionProvider"


class Runtime(Judge):
    """An exported detector, with the methods of `macs.Detector` that give verdicts."""

    def __init__(self, path: str | Path, *, providers: str | Sequence[str] = (), threads: int = 0) -> None:
        """Read a file that `macs export` wrote; no code from it is run.

        `providers` are execution providers of ONNX Runtime in order of preference (CUDA, OpenVINO, CoreML, ...), by
        default the CPU; with `threads` 0, ONNX Runtime decides on their number.
        """
        chosen = execution_providers([providers] if isinstance(providers, str) else providers)
        self.path: Path = input_file(path, "exported detector", "make one with: macs export")
        content = self.path.read_bytes()
        try:
            refuse_external_data(content, path)
            self.session: InferenceSession = session(content, chosen, threads)
            properties = self.session.get_modelmeta().custom_metadata_map
        except MacsError:
            raise
        except Exception:  # ONNX Runtime raises errors of many kinds, some longer than a page
            raise MacsError(f"{path} is damaged or not an ONNX file; export it again with: macs export.") from None
        self.label: DetectorLabel = label_in(properties, content, path)
        self.classes: tuple[str, ...] = self.label.classes
        self.preparation: Preparation = self.label.preparation
        self.calibration: Calibration = self.label.calibration
        self.sha256: str = seal(content)
        log.info("%s is an exported detector, checksum %s", self.path.absolute(), self.sha256)
        log.info(
            "ONNX Runtime %s runs it on %s, %s threads",
            silent_onnxruntime().__version__,
            ", ".join(map(short_name, self.session.get_providers())),
            threads or "its own number of",
        )
        self.reference: Reference | None = reference_in(content, self.calibration)

    @contextmanager
    def asking(self) -> Iterator[Ask]:
        yield lambda batch: run(self.session, batch)

    def __repr__(self) -> str:
        return f"Runtime({str(self.path)!r})"


def refuse_external_data(content: bytes, path: str | Path) -> None:
    """Refuse a file without all of its tensors: ONNX Runtime would read the rest from files in the working folder."""
    if has_external_data(content):
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


def run(onnx: "InferenceSession", images: NDArray[np.uint8]) -> RankedAnswers:
    """The answers of the graph for a batch; the caller makes verdicts of them, perhaps with another threshold."""
    label, confidence, p_value = onnx.run(["label", "confidence", "p_value"], {"images": images})
    return RankedAnswers(label, confidence, p_value)


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


def label_in(properties: dict[str, str], content: bytes, path: str | Path) -> DetectorLabel:
    """The label in the metadata of an ONNX file; an error if the file was changed since it was exported."""
    if "label" not in properties:
        if "macs" in properties and "calibration" in properties:
            raise MacsError(f"{path} was exported by an older macs ({properties['macs'][:40]}); export it again.")
        raise MacsError(f"{path} is an ONNX file, but not a detector; make one with: macs export.")
    try:
        label = json.loads(properties["label"])
    except (ValueError, RecursionError):
        label = None
    recognise(label, path)
    recorded = properties.get("sha256", "")
    if len(recorded) != len(UNSEALED) or recorded != seal(content.replace(recorded.encode(), UNSEALED.encode())):
        raise MacsError(f"{path} was changed after it was exported: its checksum does not match; export it again.")
    return read_label(label, path)


def reference_in(content: bytes, calibration: Calibration) -> Reference | None:
    """The calibration confidences that the file ranks images among; None where it keeps none."""
    kept = tensors(content, [CONFIDENCES]).get(CONFIDENCES)
    if kept is None or len(kept) != sum(calibration.ranked):
        return None
    return Reference(kept, np.array(calibration.ranked))


def seal(content: bytes) -> str:
    """The checksum of a file; of one that is to be sealed, with UNSEALED in its place."""
    return hashlib.sha256(content).hexdigest()
