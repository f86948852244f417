"""Rows of features or logits in requests: JSON arrays, or the tensors of the Open Inference Protocol."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.detector.rows import Columns, Rows
from macs.serve.loaded_detector import LoadedDetector
from macs.serve.uploads import JSON_VALUES, Refused, loaded

DTYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}


@dataclass(frozen=True)
class Row:
    """One row: its features and logits side by side, or the reason why it cannot be judged."""

    values: NDArray[np.float32]
    reason: str = ""
    name: str | None = None

    def read(self, detector: LoadedDetector, most_pixels: int) -> NDArray[np.float32]:
        """Return the values, of which the pipeline makes batches."""
        if self.reason:
            raise MacsError(self.reason)
        return self.values


def from_json(body: bytes, columns: Columns, most: int) -> list[Row]:
    """The rows of a JSON body such as {"features": [[...], ...]}; an entry that is null is not a number."""
    content = loaded(body, JSON_VALUES + most * sum(columns.takes.values()))
    takes = [*columns.takes]
    if not isinstance(content, dict) or content.keys() != {*takes}:
        form = ", ".join(f'"{name}": [[...], ...]' for name in takes)
        raise Refused(422, f"A JSON body must be {{{form}}} and no more: one list of numbers per row.")
    return to_rows({name: numbers(values, name) for name, values in content.items()}, columns, most)


def from_tensors(inputs: list[Any], binary: bytes | None, columns: Columns, most: int) -> list[Row]:
    """The rows of an inference request: one tensor per array, N x D, in JSON or in binary one after the other."""
    arrays, place = {}, 0
    for tensor in inputs:
        name = tensor.get("name") if isinstance(tensor, dict) else None
        if not isinstance(name, str) or name not in columns.takes or name in arrays:
            raise Refused(422, f"The inputs must be {' and '.join(columns.takes)}, each of them once.")
        shape, kind = tensor.get("shape"), tensor.get("datatype")
        if not isinstance(kind, str) or kind not in DTYPES:
            raise Refused(422, f"The datatype of {name} must be {', '.join(DTYPES)}.")
        if not isinstance(shape, list) or len(shape) != 2 or not all(type(n) is int and n > 0 for n in shape):
            raise Refused(422, f"The shape of {name} must be [N, {columns.takes[name]}], of whole numbers above 0.")
        parameters = tensor.get("parameters")
        length = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if length is None:
            flat = numbers(tensor.get("data"), name).reshape(-1)
        else:
            if type(length) is not int or binary is None or not 0 <= length <= len(binary) - place:
                raise Refused(
                    400, f"binary_data_size of {name} is {str(length)[:20]}, which is not what follows the JSON."
                )
            if length != shape[0] * shape[1] * np.dtype(DTYPES[kind]).itemsize:
                raise Refused(422, f"{name} of the shape {shape} in {kind} does not take {length} bytes.")
            flat, place = np.frombuffer(binary[place : place + length], DTYPES[kind]), place + length
        if flat.size != shape[0] * shape[1]:
            raise Refused(
                422, f"{name} of the shape {shape} holds {shape[0] * shape[1]} numbers, and there are {flat.size}."
            )
        arrays[name] = flat.reshape(shape)
    if binary is not None and place != len(binary):
        raise Refused(400, f"There are {len(binary) - place} bytes after the last tensor.")
    return to_rows(arrays, columns, most)


def numbers(values: Any, name: str) -> NDArray[np.floating[Any]]:
    """A list of numbers or of lists of numbers as an array."""
    try:
        array = np.array(values, np.float64)  # null becomes NaN, and a text is an error unless it spells a number
        texts = np.array(values).dtype.kind in "US"
    except (ValueError, TypeError, OverflowError, RecursionError):
        texts, array = True, np.empty(0)
    if texts:
        raise Refused(422, f"{name} must be lists of numbers, all equally long.")
    return array


def to_rows(arrays: dict[str, Any], columns: Columns, most: int) -> list[Row]:
    """The rows of arrays by their names, at most so many; Refused says what is wrong with any others."""
    try:
        rows = Rows.of(arrays, name="the request").matched(columns)
    except MacsError as error:
        raise Refused(422, error.sentence) from None
    if not len(rows):
        raise Refused(422, "The request holds no row.")
    if len(rows) > most:
        raise Refused(413, f"A request may hold {most} rows, and this one holds more; send them in several requests.")
    (part,) = rows.slices(len(rows))
    values = np.hstack([array for array in (part.features, part.logits) if array is not None])
    return [Row(row, part.reasons.get(place, "")) for place, row in enumerate(values)]
