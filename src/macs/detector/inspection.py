"""The content of a detector file, in words and as JSON. It is read without torch and without running code."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs.core.errors import MacsError
from macs.data.compatibility import few
from macs.detector.hub import local_file
from macs.detector.metadata import DetectorMetadata

if TYPE_CHECKING:
    from onnxruntime import NodeArg

KINDS = {".safetensors": "a detector for macs (PyTorch)", ".onnx": "an exported detector (ONNX)"}


@dataclass(frozen=True)
class Port:
    """An input or output of an ONNX file."""

    name: str
    type: str
    shape: tuple[int | str, ...]  # a string stands for a dimension of any length

    def __str__(self) -> str:
        return f"{self.name} {self.type} {' x '.join(map(str, self.shape)) or 'one number'}"


@dataclass(frozen=True)
class Inspection:
    """The content of a detector file that is complete and unchanged since it was written."""

    path: Path
    bytes: int
    sha256: str  # of the whole file, as sha256sum prints it
    metadata: DetectorMetadata
    precision: str
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()

    @property
    def resolution(self) -> float:
        """The smallest possible p-value, 1 / (n + 1), for the smallest group."""
        return 1 / (min(self.metadata.calibration.ranked) + 1)

    def as_dict(self) -> dict[str, Any]:
        values = self.metadata.as_dict()
        ports = {"inputs": self.inputs, "outputs": self.outputs} if self.inputs else {}
        columns = {} if self.metadata.columns is None else {"columns": values["columns"]}
        return {
            "file": str(self.path),
            "bytes": self.bytes,
            "sha256": self.sha256,
            "precision": self.precision,
            **{key: values[key] for key in ("format", "version", "macs", "net", "classes", "preparation")},
            **columns,
            **{key: values[key] for key in ("score", "settings", "calibration", "temperature", "recipe")},
            "resolution": self.resolution,
            **{key: [asdict(port) for port in value] for key, value in ports.items()},
        }

    def __str__(self) -> str:
        metadata = self.metadata
        settings = ", ".join(f"{key} {value}" for key, value in metadata.settings.items())
        lines = {
            "file": f"{self.path}, {KINDS[self.path.suffix]}, {self.bytes / 1e6:.2f} MB",
            "written by": f"macs {metadata.macs}, format {metadata.version}, unchanged since",
            "sha256": self.sha256,
            **self._takes(),
            "score": f"{metadata.score} ({settings})" if settings else metadata.score,
            "p-values": self._p_values(),
        }
        if metadata.columns is None:
            lines["probabilities"] = f"softmax(logits / T), T = {metadata.temperature or 1:.4g}"
        if self.inputs:
            lines["inputs"] = "; ".join(map(str, self.inputs))
            lines["outputs"] = "; ".join(map(str, self.outputs))
        record = [f"  {name} = {json.dumps(value)}" for name, value in entries(metadata.recipe or {})]
        training = ["", "The network was trained with", *record] if record else ["", "No training is recorded."]
        training = training if metadata.columns is None else []
        width = max(map(len, lines))
        facts = [f"{name:<{width}}  {value}" for name, value in lines.items()]
        return "\n".join([*facts, "", str(metadata.calibration), *training])

    def _takes(self) -> dict[str, str]:
        """What it judges, and into which classes."""
        metadata, preparation = self.metadata, self.metadata.preparation
        classes = {"classes": f"{len(metadata.classes)}: {few(metadata.classes)}" if metadata.classes else "none"}
        if preparation is None:
            names = metadata.columns.names if metadata.columns else ()
            return {"rows": str(metadata.columns), **({"columns": few(names)} if names else {}), **classes}
        mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (preparation.mean, preparation.std))
        return {
            "network": f"{metadata.net}, {self.precision}",
            **classes,
            "images": preparation.describe(),
            "normalised": f"inside the network, by mean {mean} and std {std}",
        }

    def _p_values(self) -> str:
        ranked, units = self.metadata.calibration.ranked, self.metadata.calibration.unit
        if len(ranked) == 1:
            return f"in steps of {self.resolution:.2g}, from {ranked[0]:,} calibration {units}"
        fewest, most = min(ranked), max(ranked)
        steps = f"{1 / (most + 1):.2g} to {self.resolution:.2g}"
        return f"in steps of {steps}, from {fewest:,} to {most:,} calibration {units} per predicted class"


def inspect(path: str | Path) -> Inspection:
    """Read a file of `macs calibrate` or `macs export`; an error if it is damaged, changed or of a newer version."""
    path = local_file(path)
    if path.suffix not in KINDS:
        raise MacsError(
            f"{path} is not a detector file, which ends in .safetensors (macs calibrate) or .onnx (macs export)."
        )
    if path.suffix == ".onnx":
        from macs.detector.runtime import OnnxDetector

        runtime = OnnxDetector(path, threads=1)
        path, metadata, content = runtime.path, runtime.metadata, runtime.path.read_bytes()
        session = runtime.session
        precision = session.get_modelmeta().custom_metadata_map.get("precision", "float32")
        inputs, outputs = ([*session.get_inputs(), *session.get_overridable_initializers()], session.get_outputs())
        ports = tuple(map(port, inputs)), tuple(map(port, outputs))
    else:
        from macs.detector.saving import read

        (path, metadata, content), precision, ports = read(path), "float32", ((), ())
    return Inspection(path, len(content), hashlib.sha256(content).hexdigest(), metadata, precision, *ports)


def port(argument: "NodeArg") -> Port:
    """An input or output as ONNX Runtime describes it, for example images, uint8, batch x 32 x 32 x 3."""
    type_name = argument.type.removeprefix("tensor(").removesuffix(")")
    return Port(argument.name, {"float": "float32"}.get(type_name, type_name), tuple(argument.shape))


def entries(record: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested dicts, each with its keys joined by dots."""
    for key, value in record.items():
        if isinstance(value, dict):
            yield from entries(value, f"{before}{key}.")
        else:
            yield before + key, value
