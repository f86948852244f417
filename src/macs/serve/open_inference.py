"""Open Inference Protocol v2: requests with tensors, as JSON or binary, as the clients of KServe and Triton send them.

A request has one input, and asks for any of the outputs:

    images   UINT8  [N, H, W, 3]   raw RGB pixels, resized and cropped if they have another size than the network's
    files    BYTES  [N]            image files; in JSON, base64

Of a detector of rows, it has an input for each array instead: features, logits or probabilities, FP32 [N, D].

With the binary extension, the header Inference-Header-Content-Length says where the JSON ends and the tensors begin. A
BYTES element is its length in four bytes, little endian, followed by its content.
"""

import base64
import binascii
import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from macs.detector.rows import Columns
from macs.detector.runtime import Runtime
from macs.predictions import NO_CLASS
from macs.serve.loaded_detector import LoadedDetector
from macs.serve.rows import Row, from_tensors
from macs.serve.uploads import Refused, Upload, loaded, too_many

HEADER = "inference-header-content-length"
VERSION = "1"
OUTPUTS = {
    "index": "INT64",
    "confidence": "FP32",
    "p_value": "FP32",
    "is_ood": "BOOL",
    "threshold": "FP32",
    "class": "BYTES",
}
NONE = {"index": NO_CLASS, "class": ""}
FORMER = {"label": "index"}  # outputs that may still be asked for by a former name, and are answered under it
DTYPES = {"INT64": "<i8", "FP32": "<f4", "BOOL": "?"}
SETTINGS = ("threshold", "keep")  # parameters of a request that we know
JSON_VALUES = 2_000_000  # of tensors in JSON; nobody is answered in the 0.2 s that parsing them takes


@dataclass(frozen=True)
class TensorImage:
    """One image of a tensor."""

    pixels: NDArray[np.uint8]

    def read(self, detector: LoadedDetector, most_pixels: int) -> NDArray[np.uint8]:
        if self.pixels.shape[:2] == (detector.size, detector.size):  # counts as prepared, as in `predict`
            return self.pixels
        assert isinstance(detector.runtime, Runtime)  # which is what gets images
        return detector.runtime.preparation(Image.fromarray(self.pixels))


@dataclass(frozen=True)
class Asked:
    """An inference request: its images, and the outputs to answer with."""

    id: str | None
    images: list[TensorImage] | list[Upload] | list[Row]
    outputs: dict[str, bool]  # whether each is to be binary
    settings: dict[str, float]


def metadata(detector: LoadedDetector) -> dict[str, Any]:
    """The answer of /v2/models/NAME."""
    return {
        "name": detector.name,
        "versions": [VERSION],
        "platform": "macs_onnxruntime",
        "inputs": inputs_of(detector.columns),
        "outputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in OUTPUTS.items()],
    }


def inputs_of(columns: Columns | None) -> list[dict[str, Any]]:
    """The tensors of a request."""
    if columns is not None:
        return [{"name": name, "datatype": "FP32", "shape": [-1, width]} for name, width in columns.takes.items()]
    return [
        {"name": "images", "datatype": "UINT8", "shape": [-1, -1, -1, 3]},
        {"name": "files", "datatype": "BYTES", "shape": [-1]},
    ]


def parse(body: bytes, header_length: str | None, most: int, most_pixels: int, columns: Columns | None = None) -> Asked:
    """The request in a body, of rows if there are `columns`; Refused says what is wrong with any other."""
    text, tensors = split(body, header_length)
    content = loaded(text, JSON_VALUES)
    if columns is not None:
        if not isinstance(content, dict) or not isinstance(content.get("inputs"), list):
            raise Refused(422, f"An inference request has the inputs {' and '.join(columns.takes)} in `inputs`.")
        return asked(content, from_tensors(content["inputs"], tensors, columns, most))
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), list) or len(content["inputs"]) != 1:
        raise Refused(422, "An inference request has one input in `inputs`: images (UINT8) or files (BYTES).")
    tensor = content["inputs"][0]
    name, shape, raw = describe(tensor, tensors, most)
    if name == "images":
        images: list[TensorImage] | list[Upload] = pixels_of(tensor, shape, raw, most_pixels)
    else:
        images = [Upload(None, file) for file in files_of(tensor, shape, raw)]
    return asked(content, images)


def asked(content: dict[str, Any], images: list[TensorImage] | list[Upload] | list[Row]) -> Asked:
    """The request with its outputs and settings."""
    parameters = table(content.get("parameters"), "parameters")
    identifier = content.get("id")
    if not isinstance(identifier, str | None):
        raise Refused(422, "id must be a text.")
    settings = {key: parameters[key] for key in SETTINGS if parameters.get(key) is not None}
    for key, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
            raise Refused(422, f"parameters.{key} must be a number.")
    return Asked(identifier, images, wanted(content.get("outputs"), parameters), settings)


def split(body: bytes, header_length: str | None) -> tuple[bytes, bytes | None]:
    """The JSON of a body, and the bytes after it; None where there is no binary part."""
    if header_length is None:
        return body, None
    if not header_length.isdecimal() or not header_length.isascii() or len(header_length) > 12:
        raise Refused(400, f"{HEADER} must be a whole number.")
    if int(header_length) > len(body):
        raise Refused(400, f"{HEADER} is {int(header_length)}, and the body has {len(body)} bytes.")
    return body[: int(header_length)], body[int(header_length) :]


def table(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(422, f"{name} must be an object.")
    return value


def describe(tensor: Any, tensors: bytes | None, most: int) -> tuple[str, list[int], bytes | None]:
    """An input's name, its shape, and its bytes if it is binary."""
    kinds = {"images": ("UINT8", 4, "[N, H, W, 3]"), "files": ("BYTES", 1, "[N]")}
    name = tensor.get("name") if isinstance(tensor, dict) else None
    if not isinstance(name, str) or name not in kinds:
        raise Refused(422, "The input must be called images (UINT8) or files (BYTES).")
    kind, dimensions, words = kinds[name]
    if tensor.get("datatype") != kind:
        raise Refused(422, f"The datatype of {name} must be {kind}.")
    shape = tensor.get("shape")
    if not isinstance(shape, list) or len(shape) != dimensions or not all(type(n) is int and n > 0 for n in shape):
        raise Refused(422, f"The shape of {name} must be {words}, of whole numbers above 0.")
    if dimensions == 4 and shape[3] != 3:
        raise Refused(422, f"The shape of {name} must be {words}, and ends in {str(shape[3])[:20]}.")
    if shape[0] > most:
        raise too_many(most)
    length = table(tensor.get("parameters"), f"inputs.{name}.parameters").get("binary_data_size")
    if length is None:
        return name, shape, None
    if "data" in tensor:
        raise Refused(422, f"{name} has both data and binary_data_size; give one of them.")
    if tensors is None or type(length) is not int or length != len(tensors):
        there = f"there are {len(tensors)} bytes" if tensors else "there is nothing"
        raise Refused(400, f"binary_data_size of {name} is {str(length)[:20]}, and {there} after the JSON.")
    return name, shape, tensors


def pixels_of(tensor: dict[str, Any], shape: list[int], raw: bytes | None, most_pixels: int) -> list[TensorImage]:
    if shape[1] * shape[2] > most_pixels:
        raise Refused(413, f"An image may have {most_pixels:,} pixels, and these have more.")
    count = math.prod(shape)
    if raw is None:
        values = tensor.get("data")
        try:
            array = np.array(values)
        except (ValueError, TypeError, OverflowError, RecursionError):
            array = np.array(None)
        whole = array.dtype.kind in "iu" and array.size and array.min() >= 0 and array.max() <= 255
        if not whole or array.size != count or (array.ndim > 1 and list(array.shape) != shape):
            raise Refused(422, f"data of images must be {count} whole numbers from 0 to 255.")
        flat = array.astype(np.uint8)
    else:
        if len(raw) != count:
            raise Refused(422, f"images of the shape {shape} take {count} bytes, and there are {len(raw)}.")
        flat = np.frombuffer(raw, np.uint8)
    return [TensorImage(image) for image in flat.reshape(shape)]


def files_of(tensor: dict[str, Any], shape: list[int], raw: bytes | None) -> list[bytes]:
    if raw is None:
        values: Any = tensor.get("data")
        try:
            contents = [base64.b64decode(value, validate=True) for value in values]
        except (TypeError, binascii.Error, ValueError):
            raise Refused(422, "data of files must be a list of strings in base64.") from None
    else:
        contents = elements(raw)
    if len(contents) != shape[0]:
        raise Refused(422, f"files of the shape {shape} hold {shape[0]} files, and there are {len(contents)}.")
    return contents


def elements(raw: bytes) -> list[bytes]:
    """The elements of a binary BYTES tensor."""
    contents, place = [], 0
    while place < len(raw):
        (length,) = struct.unpack_from("<I", raw, place) if place + 4 <= len(raw) else (len(raw),)
        place += 4 + length
        if place > len(raw):
            raise Refused(400, "The bytes of files end before their last element does.")
        contents.append(raw[place - length : place])
    return contents


def wanted(outputs: Any, parameters: dict[str, Any]) -> dict[str, bool]:
    """The names of the requested outputs (all, if none is named), and whether each is to be binary."""
    binary = parameters.get("binary_data_output") is True
    if not outputs:
        return dict.fromkeys(OUTPUTS, binary)
    requested = {}
    for output in outputs if isinstance(outputs, list) else [None]:
        name = output.get("name") if isinstance(output, dict) else None
        if not isinstance(output, dict) or not isinstance(name, str) or name not in {*OUTPUTS, *FORMER}:
            raise Refused(422, f"An output must be one of {', '.join(OUTPUTS)}.")
        options = table(output.get("parameters"), f"outputs.{name}.parameters")
        requested[name] = options.get("binary_data", binary) is True
    return requested


def answer(asked: Asked, detector: LoadedDetector, columns: dict[str, list[Any]]) -> tuple[bytes, int | None]:
    """The body of the answer, and the length of its JSON if binary tensors follow."""
    outputs, tail = [], []
    for name, binary in asked.outputs.items():
        present = FORMER.get(name, name)
        kind, values = OUTPUTS[present], columns[present]
        if present in NONE:  # where no class is predicted
            values = [NONE[present] if value is None else value for value in values]
        output: dict[str, Any] = {"name": name, "datatype": kind, "shape": [len(values)]}
        if binary:
            tail.append(encoded(kind, values))
            output["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            output["data"] = values
        outputs.append(output)
    content = {"model_name": detector.name, "model_version": VERSION, "outputs": outputs}
    text = json.dumps(content if asked.id is None else content | {"id": asked.id}, allow_nan=False).encode()
    return text + b"".join(tail), len(text) if tail else None


def encoded(kind: str, values: list[Any]) -> bytes:
    """A tensor in its binary form; a missing number becomes NaN."""
    if kind == "BYTES":
        texts = [value.encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    numbers = [math.nan if value is None else value for value in values]
    return np.array(numbers, DTYPES[kind]).tobytes()
