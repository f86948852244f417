"""The constant tensors of an ONNX file, by name, and whether it has all of them; read without the onnx package.

An ONNX file is a protobuf message (onnx.proto): Model.graph is field 7, Graph.initializer field 5; of a Tensor, dims is
field 1, data_type 2, name 8, raw_data 9 and data_location 14. Only tensors that are asked for are copied.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

GRAPH, INITIALIZER = 7, 5
DIMS, DATA_TYPE, NAME, RAW_DATA, DATA_LOCATION = 1, 2, 8, 9, 14
# The fields of each message that lead to tensors.
INSIDE = {
    "model": {GRAPH: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", INITIALIZER: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 11: "<f8"}
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # protobuf's wire types


def tensors(content: bytes, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Those of the tensors that the file has, as raw data of a type listed above."""
    found = {}
    for number, graph in fields(memoryview(content)):
        for inner, tensor in fields(graph) if number == GRAPH and isinstance(graph, memoryview) else ():
            if inner == INITIALIZER and isinstance(tensor, memoryview):
                name, value = read(tensor, names)
                if value is not None:
                    found[name] = value
    return found


def has_external_data(content: bytes) -> bool:
    """Whether the data of any tensor is elsewhere; it raises if this is not protobuf."""
    messages = [("model", memoryview(content))]
    while messages:
        kind, message = messages.pop()
        for number, value in fields(message):
            if kind == "tensor":
                if number == DATA_LOCATION and value != 0:
                    return True
            elif number in INSIDE[kind] and isinstance(value, memoryview):
                messages.append((INSIDE[kind][number], value))
    return False


def read(tensor: memoryview, names: Sequence[str]) -> tuple[str, NDArray[Any] | None]:
    """A tensor's name, and its value if its name is one of those and its data is raw."""
    shape: list[int] = []
    name, kind, raw = "", 0, None
    for number, value in fields(tensor):
        if number == NAME and isinstance(value, memoryview):
            name = bytes(value).decode("utf-8", "replace")
        elif number == DATA_TYPE and isinstance(value, int):
            kind = value
        elif number == DIMS:
            shape += [value] if isinstance(value, int) else packed(value)
        elif number == RAW_DATA:
            raw = value
    if name not in names or kind not in DTYPES or not isinstance(raw, memoryview):
        return name, None
    flat = np.frombuffer(raw, DTYPES[kind])
    return name, flat.reshape(shape).copy() if math.prod(shape) == len(flat) else None


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message: their numbers, and their values as numbers or bytes."""
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        if key >= 2**32:  # protobuf would drop the upper bits and see another field
            raise ValueError("a field of this number cannot exist")
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, place = varint(message, place)
            yield number, value
        else:
            length, place = varint(message, place) if wire == LENGTH else ({FIXED64: 8, FIXED32: 4}[wire], place)
            yield number, message[place : place + length]
            place += length


def packed(message: memoryview) -> list[int]:
    """Several numbers in one field."""
    numbers, place = [], 0
    while place < len(message):
        number, place = varint(message, place)
        numbers.append(number)
    return numbers


def varint(message: memoryview, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first, and the place behind it."""
    number = shift = 0
    while shift < 70:  # the ten bytes that protobuf allows
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place
    raise ValueError("a number has more than ten bytes")
