"""Detector files that were forged, cut short or hit by a cosmic ray, and ONNX files in their place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import Case, Outcome, Workshop, case, check
from macs.detector.saving import checksum

pytestmark = pytest.mark.hostile

VALUES: list[Any] = ["x", float("nan"), None, True, -1, 10**30, [], {}]
LABEL = ["format", "version", "macs", "net", "classes", "preparation", "preparation.size", "score", "settings"]
LABEL += ["calibration", "recipe"]
CALIBRATION = ["keep", "score", "data", "images", "thresholds", "accuracy", "checks", "passing"]
THRESHOLD = ["group", "images", "rank", "value", "interval"]
FIELDS = [*LABEL, *(f"calibration.{name}" for name in CALIBRATION)]
FIELDS += [f"calibration.thresholds.0.{name}" for name in THRESHOLD]
# What decides a verdict must be what macs wrote; elsewhere a wrong record may be shown as it is.
STRICT = ["format", "net", "classes", "score", "calibration", "calibration.thresholds"]


def forged(field: str, value: Any) -> Any:
    """The detector with one field of its label replaced, or deleted, and the right checksum."""

    def forge(folder: Path) -> bytes:
        content = (folder / "detector.safetensors").read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header, tensors = json.loads(content[8:end]), content[end:]
        label = json.loads(header.pop("__metadata__")["macs"])
        del label["sha256"]
        *parents, last = [int(part) if part.isdigit() else part for part in field.split(".")]
        inner: Any = label
        for parent in parents:
            inner = inner[parent]
        if value is DELETED:
            del inner[last]
        else:
            inner[last] = value
        label["sha256"] = checksum(label, header, tensors)
        text = json.dumps({"__metadata__": {"macs": json.dumps(label)}, **header}).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + tensors

    return forge


DELETED = object()
PREDICT = ("predict", "good.png", "--detector")


def forged_case(field: str, value: Any, shown: str) -> Case:
    codes = 2 if field in STRICT else (0, 2)
    files = {"forged.safetensors": forged(field, value)}
    return case(*PREDICT, "forged.safetensors", codes=codes, files=files, name=f"{field} = {shown}")


# The forger's own work is good: a file whose label is only written anew is taken.
CASES = [
    case(
        *PREDICT, "new.safetensors", codes=0, files={"new.safetensors": forged("format", "macs-detector")}, name="same"
    )
]
CASES += [forged_case(field, value, repr(value)) for field in FIELDS for value in VALUES]
CASES += [forged_case(field, DELETED, "nothing") for field in FIELDS if field not in ("recipe", "macs")]
CASES += [
    case(*PREDICT, "cut.safetensors", files={"cut.safetensors": cut}, name=f"the first {length} bytes")
    for length in (0, 1, 7, 8, 9, 100, 5000, 100_000, -8, -1)
    for cut in [lambda folder, length=length: (folder / "detector.safetensors").read_bytes()[:length]]
]
CASES += [
    case(*PREDICT, "odd.safetensors", files={"odd.safetensors": content}, name=f"a detector of {content[:16]!r}")
    for content in (
        b"\xff" * 64,
        b"\x00" * 64,
        (2**63).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (100_000).to_bytes(8, "little") + b"[" * 100_000,
        b"PK\x03\x04" + b"\x00" * 64,
    )
]
CASES += [
    case(*PREDICT, name, codes=2, name=f"{name} as a detector")
    for name in ("run/net.safetensors", "checkpoint.pt", "good.png", "recipe.toml", "run", "own.py")
]
CASES += [case(*PREDICT, "detector.onnx", codes=0, name="an exported detector")]
CASES += [case("inspect", name, codes=0, name=f"inspect {name}") for name in ("detector.safetensors", "detector.onnx")]
CASES += [
    case("inspect", name, codes=2, name=f"inspect {name}")
    for name in ("run/net.safetensors", "checkpoint.pt", "good.png", "run", "fifo", "locked.safetensors", "", "no.onnx")
]
CASES += [
    case(*command, "--detector", name, "--id", "mine", "--ood", "unknown", codes=2, name=f"{command[0]} of {name!r}")
    for command in (["evaluate"], ["report", "--out", "new.html"])
    for name in ("run/net.safetensors", "good.png", "run", "fifo", "", "no.onnx")
]
CASES += [
    case(*PREDICT, "cut.onnx", files={"cut.onnx": cut}, name=f"the first {length} bytes of an ONNX file")
    for length in (0, 1, 100, 20_000, -1)
    for cut in [lambda folder, length=length: (folder / "detector.onnx").read_bytes()[:length]]
]
CASES += [
    case("export", name, "new.onnx", codes=2, name=f"export of {name}")
    for name in ("run/net.safetensors", "checkpoint.pt", "detector.onnx", "good.png", "fifo", "locked.safetensors")
]


def test_a_forged_detector_is_refused_or_harmless(case: Case, outcome: Outcome) -> None:
    check(outcome, case)


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), header=st.booleans())
def test_a_flipped_bit_is_found(workshop: Workshop, place: float, bit: int, header: bool) -> None:
    def flipped(folder: Path) -> bytes:
        content = bytearray((folder / "detector.safetensors").read_bytes())
        end = 8 + int.from_bytes(content[:8], "little") if header else len(content)
        content[int(place * end)] ^= 1 << bit
        return bytes(content)

    bit_case = case(*PREDICT, "bit.safetensors", files={"bit.safetensors": flipped})
    check(workshop.run(bit_case.call), bit_case)
