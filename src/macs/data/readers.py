"""One function per file format of the public datasets. No file that is read here can run code.

A pickle is a program. It may not call any function of its choice, not even numpy's own: a forged dtype can make numpy
treat bytes as pointers. Plain stand-ins collect shapes, codes and bytes, and arrays are built from these.
"""

import math
import pickle
import re
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError, first_line
from macs.core.files import input_file
from macs.data.pixels import Mapped, Pixels, check_images


class CodeInPickle(Exception):
    """Carries the name of the function that a pickle asked for."""


def unpickle(file: BinaryIO) -> dict[str, Any]:
    """Return the dictionary in a file, its arrays read-only; strings of Python 2 are bytes, except for the keys."""
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


Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_pickle(path: Path) -> dict[str, Any]:
    """Return the dictionary in a pickle of Python 2 or 3 that holds only arrays and plain values."""
    path = input_file(path)
    try:
        with path.open("rb") as file:
            return unpickle(file)
    except CodeInPickle as refused:
        raise MacsError(
            f"{path} asks to run {refused}, which data never needs; get the file from a trusted source."
        ) from None
    except Exception as error:  # a damaged pickle can raise anything
        raise damaged(path, error) from error


def read_rows(path: Path, key: str, classes: int, first: int = 0) -> Labelled:
    """Read a batch of CIFAR or ImageNet-32: rows of 3 x size x size bytes, and labels from `first` on in `key`."""
    planes, labels = _planes(path, key, classes, first)
    return np.stack([planes[:, 0], planes[:, 1], planes[:, 2]], axis=-1), labels  # faster than a transposed copy


def map_rows(path: Path, key: str, classes: int, first: int = 0) -> tuple[Pixels, NDArray[np.int64]]:
    """Return the same, with the images left in the file if it holds them byte for byte, as all but old pickles do."""
    planes, labels = _planes(path, key, classes, first)
    raw = np.ascontiguousarray(planes).data.cast("B")
    with path.open("rb") as file:
        mapping = mmap(file.fileno(), 0, access=ACCESS_READ)
    start = mapping.find(raw[:4096])
    if start < 0 or raw != memoryview(mapping)[start : start + len(raw)]:
        return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels
    mapped = np.frombuffer(mapping, np.uint8, len(raw), start).reshape(planes.shape)
    return Mapped(mapped.transpose(0, 2, 3, 1), mapping), labels


def _planes(path: Path, key: str, classes: int, first: int) -> Labelled:
    """Return the rows of a batch as N x 3 x size x size, and its labels counted from 0."""
    batch = read_pickle(path)
    if missing := {"data", key} - batch.keys():
        raise damaged(path, f"it has no {' and no '.join(sorted(missing))}")
    rows = array_from(path, batch["data"])
    size = math.isqrt(rows.shape[1] // 3) if rows.ndim == 2 else 0
    if rows.dtype != np.uint8 or not size or rows.shape[1] != 3 * size * size:
        raise damaged(path, f"its data are {rows.dtype} of shape {rows.shape}, not rows of square RGB images")
    return rows.reshape(-1, 3, size, size), checked_labels(path, batch[key], len(rows), first, classes)


def read_svhn(path: Path) -> Labelled:
    """Read a MATLAB file of SVHN: X is 32 x 32 x 3 x N, and y counts from 1 to 10, where 10 stands for 0."""
    from scipy.io import loadmat

    path = input_file(path)
    try:
        content = loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # on a truncated file scipy raises zlib.error, TypeError, ValueError...
        raise damaged(path, error) from error
    if missing := {"X", "y"} - content.keys():
        raise damaged(path, f"it has no {' and no '.join(sorted(missing))}")
    stack = array_from(path, content["X"])
    if stack.dtype != np.uint8 or stack.ndim != 4 or stack.shape[2] != 3:
        raise damaged(path, f"its X is {stack.dtype} of shape {stack.shape}, not height x width x 3 x images")
    labels = checked_labels(path, array_from(path, content["y"]).ravel(), stack.shape[3], first=1, classes=10)
    return np.ascontiguousarray(stack.transpose(3, 0, 1, 2)), (labels + 1) % 10


def read_npy(path: Path) -> Mapped:
    """Return an array of images, N x size x size x 3, left on disk and read as it is used."""
    path = input_file(path, ".npy file")
    try:
        with np.errstate(over="raise"):  # numpy does not check the product of a forged shape
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:
        raise damaged(path, error) from error
    if not isinstance(array, np.ndarray):
        raise MacsError(f"{path} is an archive (.npz), not one array; save the images alone, with numpy.save.")
    check_images(path, array)
    mapping: Any = array.base
    return Mapped(array, mapping)


def checked_labels(path: Path, labels: ArrayLike, images: int, first: int, classes: int) -> NDArray[np.int64]:
    """Return labels counted from 0, one per image, all of known classes."""
    numbers = array_from(path, labels)
    if numbers.shape != (images,) or numbers.dtype.kind not in "iu":
        raise damaged(path, f"it has {images} images and labels of shape {numbers.shape} ({numbers.dtype})")
    wrong = (numbers < first) | (numbers >= first + classes)
    if wrong.any():
        i = int(wrong.argmax())
        raise damaged(path, f"the label {numbers[i]} of image {i} is not in {first} to {first + classes - 1}")
    return numbers.astype(np.int64) - first


def array_from(path: Path, value: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise damaged(path, error) from None


def damaged(path: Path, why: object) -> MacsError:
    """Return the error for a file whose content is not as expected."""
    if isinstance(why, OSError) and why.strerror:
        return MacsError(f"Cannot read {path}: {why.strerror}.")
    reason = first_line(why)
    return MacsError(f"Cannot read {path}, which is damaged or of another format ({reason}); get the file again.")
