"""Detector files with a false content and a right checksum."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch


def forged(
    source: Path,
    target: Path,
    tensors: dict[str, torch.Tensor] | None = None,
    without_keys: Sequence[str] = (),
    **changes: Any,
) -> Path:
    """A file with another label or other tensors whose checksum is right, put together byte by byte."""
    content = source.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    label = json.loads(json.loads(content[8:start])["__metadata__"]["macs"]) | changes
    for key in ("sha256", *without_keys):
        del label[key]
    plain = safetensors.torch.save(tensors or safetensors.torch.load(content))
    start = 8 + int.from_bytes(plain[:8], "little")
    text = json.dumps([label, json.loads(plain[8:start])], sort_keys=True)
    label["sha256"] = hashlib.sha256(text.encode() + plain[start:]).hexdigest()
    safetensors.torch.save_file(safetensors.torch.load(plain), target, {"macs": json.dumps(label)})
    return target
