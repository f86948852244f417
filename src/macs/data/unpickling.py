"""Reads a pickle of arrays and plain values without running code that the pickle names.

A pickle is a program. It may not call any function of its choice, not even numpy's own: a forged dtype can make numpy
treat bytes as pointers. Plain stand-ins collect shapes, codes and bytes, and arrays are built from these.
"""

import pickle
import re
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


class CodeInPickle(Exception):
    """Carries the name of the function that a pickle asked for."""


def unpickle(file: BinaryIO) -> dict[str, Any]:
    """The dictionary in a file, its arrays read-only; strings of Python 2 are bytes, except for the keys."""
    content = PlainUnpickler(file, encoding="bytes").load()
    return {text(key): value.array if isinstance(value, Array) else value for key, value in content.items()}


def text(name: str | bytes) -> str:
    return name.decode("latin1") if isinstance(name, bytes) else name


class Dtype:
    """Stands in for numpy.dtype: a code such as u1, and then a state whose second part is the byte order."""

    def __init__(self, code: str | bytes, align: int = 0, copy: int = 0) -> None:
        self.code, self.order = text(code), "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = text(state[1])

    def of_numbers(self) -> np.dtype[Any]:
        if not re.fullmatch("[<>|=][biuf][1248]", self.order + self.code):
            raise ValueError(f"an array of {self.code} is not an array of numbers")
        return np.dtype(self.order + self.code)


class Array:
    """Stands in for numpy.ndarray, whose state is: version, shape, dtype, whether in Fortran order, bytes."""

    array: NDArray[Any]

    def __setstate__(self, state: tuple[int, tuple[int, ...], Dtype, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        self.array = from_bytes(raw, dtype, shape, "F" if fortran else "C")


def empty_array(*ignored: object) -> Array:
    """Stands in for numpy's _reconstruct; the content comes with the array's state."""
    return Array()


def from_bytes(raw: bytes, dtype: Dtype, shape: tuple[int, ...], order: str, *ignored: object) -> NDArray[Any]:
    """Stands in for _frombuffer, with which protocol 5 stores whole arrays."""
    array = np.frombuffer(raw, dtype.of_numbers()).reshape(shape, order="F" if order == "F" else "C")
    array.flags.writeable = False  # protocol 5 gives a bytearray
    return array


def number(dtype: Dtype, raw: bytes) -> int | float:
    """Stands in for numpy's scalar."""
    value: int | float = np.frombuffer(raw, dtype.of_numbers())[0].item()
    return value


def latin1(value: str, encoding: str) -> bytes:
    """Stands in for codecs.encode, with which old protocols store bytes; the original would allow every codec."""
    return value.encode("latin1")


ALLOWED = {"numpy.ndarray": Array, "numpy.dtype": Dtype, "_codecs.encode": latin1}
for core in ("numpy.core", "numpy._core"):  # numpy 1 and numpy 2
    ALLOWED |= {
        f"{core}.multiarray._reconstruct": empty_array,
        f"{core}.multiarray.scalar": number,
        f"{core}.numeric._frombuffer": from_bytes,
    }


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        wanted = f"{module}.{name}"
        if wanted not in ALLOWED:
            raise CodeInPickle(wanted)
        return ALLOWED[wanted]
