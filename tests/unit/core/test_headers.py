"""Headers of safetensors files, beside the safetensors package itself."""

import io
import json
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from macs.core.headers import LONGEST, label_text, read_header


def test_a_header_is_read_as_safetensors_wrote_it() -> None:
    floats, integers = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(1, np.int64)
    tensors: dict[str, NDArray[Any]] = {"a": floats, "b": integers}
    content = safetensors.numpy.save(tensors, metadata={"macs": '{"x": 1}'})
    header, start = read_header(io.BytesIO(content))
    assert label_text(header) == '{"x": 1}'
    for name, tensor in tensors.items():
        first, last = header[name]["data_offsets"]
        assert header[name]["shape"] == list(tensor.shape)
        assert content[start + first : start + last] == tensor.tobytes()
    assert start + max(header[name]["data_offsets"][1] for name in tensors) == len(content)


def test_a_file_of_others_has_no_label() -> None:
    header, _ = read_header(io.BytesIO(safetensors.numpy.save({"a": np.ones(1)}, metadata={"format": "pt"})))
    assert label_text(header) is None
    assert label_text({}) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x05",
        (20).to_bytes(8, "little") + b"{",
        (2).to_bytes(8, "little") + b"[]",
        (LONGEST + 1).to_bytes(8, "little") + b"{}",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        (2).to_bytes(8, "little") + b"\xff\xfe",
    ],
    ids=["empty", "cut in the length", "cut in the header", "a list", "too long", "nested", "not text"],
)
def test_what_is_no_header_is_a_value_error(content: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - some are json's own
        read_header(io.BytesIO(content))


@pytest.mark.parametrize("metadata", [[1], 3, {"macs": 3}, {"macs": ["x"]}])
def test_metadata_of_another_form_are_refused(metadata: object) -> None:
    with pytest.raises(ValueError, match="metadata"):
        label_text(json.loads(json.dumps({"__metadata__": metadata})))
