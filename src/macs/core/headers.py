"""The header of a safetensors file, read without torch.

Such a file holds the length of its header in 8 bytes, the header as a JSON object, and then the bytes of its tensors.
The header has an entry per tensor, and perhaps metadata; our own files keep their label there, as JSON under "macs".
"""

import json
from typing import Any, BinaryIO

LONGEST = 100_000_000  # bytes, the limit of safetensors itself


def read_header(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Return the header, and the position at which the tensors begin; a ValueError if there is no such header."""
    length = int.from_bytes(file.read(8), "little")
    try:
        header = json.loads(file.read(length) if length <= LONGEST else b"")
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")  # noqa: TRY004 - the file is wrong, not the call
    return header, 8 + length


def label_text(header: dict[str, Any]) -> str | None:
    """Return the JSON text of our label, None in a file that is not ours; raise for metadata of another form."""
    metadata = header.get("__metadata__", {})
    text = metadata.get("macs") if isinstance(metadata, dict) else metadata
    if not isinstance(text, str | None):
        raise ValueError("its metadata are not strings")  # noqa: TRY004 - likewise
    return text
