"""Pickles of arrays and plain values read without running them; whole files are in `test_readers.py`."""

import io
import os
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

from macs.data.readers import CodeInPickle, unpickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ARRAYS = [
    np.arange(12, dtype=np.uint8).reshape(3, 4),
    np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
    np.array([1.5, -2.5], ">f4"),
    np.array(True),
]


def read(content: object, protocol: int) -> dict[str, object]:
    return unpickle(io.BytesIO(pickle.dumps(content, protocol)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_arrays_come_back_equal_and_read_only(array: Any, protocol: Any) -> None:
    found: Any = read({"data": array}, protocol)["data"]
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and not found.flags.writeable


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_values_come_back_as_they_are(protocol: Any) -> None:
    content = {"a": [1, 2.5, None, True, "é"], "b": {"inner": (1, 2)}, "c": np.float32(0.5), "d": b"\x00\xff"}
    assert read(content, protocol) == content


def test_keys_are_text_even_where_python_2_wrote_them() -> None:
    assert unpickle(io.BytesIO(b"\x80\x02}(U\x04dataU\x02\xffxu.")) == {"data": b"\xffx"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("value", "name"),
    [(os.getcwd, "getcwd"), (OrderedDict(), "OrderedDict"), (np.random.RandomState, "RandomState"), (np.load, "load")],
)
def test_whatever_else_is_called_is_refused_by_its_name(value: Any, name: Any, protocol: Any) -> None:
    with pytest.raises(CodeInPickle, match=name):
        read({"data": value}, protocol)


@pytest.mark.parametrize("array", [np.array(["text"]), np.array([None], object), np.zeros(2, "u1,u1")])
def test_an_array_that_holds_no_numbers_is_refused(array: Any) -> None:
    with pytest.raises(ValueError, match="is not an array of numbers"):
        read({"data": array}, 4)


def test_fewer_bytes_than_a_shape_needs_are_refused() -> None:
    whole = pickle.dumps({"data": np.zeros((4, 4), np.uint8)}, 2)
    forged = whole.replace(b"K\x04K\x04\x86", b"K\x04K\x05\x86")
    assert forged != whole
    with pytest.raises(ValueError, match="reshape"):
        unpickle(io.BytesIO(forged))
