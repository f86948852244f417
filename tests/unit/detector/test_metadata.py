"""The fields of the metadata and their types; `test_detector_files.py` forges whole files."""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data.preparation import NORMALISATIONS, Preparation
from macs.detector.calibration import Calibration, conformal_threshold
from macs.detector.metadata import FORMAT, VERSION, DetectorMetadata, wrong_names

CONFIDENCES = np.random.default_rng(0).random(50, dtype=np.float32)


@pytest.fixture
def metadata() -> DetectorMetadata:
    record = Calibration(0.9, "knn", "validation", 50, (conformal_threshold(CONFIDENCES, 0.9),), ranked=(50,))
    preparation = Preparation(16).normalised(NORMALISATIONS["half"])
    return DetectorMetadata(FORMAT, VERSION, "0.1", "wrn-10-1", ("a", "b"), preparation, "knn", record, None, {"k": 3})


def told(metadata: DetectorMetadata) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(metadata)))


def test_metadata_are_the_same_after_a_round_through_json(metadata: Any) -> None:
    assert DetectorMetadata.from_json(told(metadata), "d.safetensors") == metadata


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": True}, "version must be a whole number, not True"),
        ({"classes": "ab"}, "classes must be a list, not 'ab'"),
        ({"classes": ["a", 2]}, r"classes\[1\] must be a string, not 2"),
        ({"preparation": {"size": 0}}, "preparation.size must be at least 1"),
        ({"calibration": 3}, "calibration must be a table of settings, not 3"),
        ({"calibration": {"keep": 0.9}}, "A Calibration needs the setting score"),
        ({"choice": {"score": "knn"}}, "A Choice needs the setting data"),
        ({"more": 1}, "There is no setting of DetectorMetadata called 'more'"),
    ],
)
def test_a_field_of_another_type_is_named(metadata: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(MacsError, match=f"^d.safetensors has metadata that macs did not write: {words}"):
        DetectorMetadata.from_json(told(metadata) | change, "d.safetensors")


@pytest.mark.parametrize("keep", [float("nan"), float("inf"), "0.9", None, [0.9]])
def test_a_number_inside_a_record_must_be_finite(metadata: Any, keep: Any) -> None:
    values = told(metadata)
    values["calibration"]["keep"] = keep
    with pytest.raises(MacsError, match="did not write: calibration.keep must be a number, not"):
        DetectorMetadata.from_json(values, "d.safetensors")


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (("a", "b"), ""),
        ((), ""),
        (("a", "b", "a"), "two classes are called 'a'"),
        (("a", " "), "a class has no name"),
        (("a",), "there is only one class"),
    ],
)
def test_names_that_cannot_be_told_apart(names: Any, wrong: Any) -> None:
    assert wrong_names(names) == wrong


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 4}, "a threshold of rank 4 among 50 images does not keep 0.9"),  # floor(51 * 0.1) = 5
        ({"interval": (0.9, 0.8)}, "the interval 0.9 to 0.8 holds no shares"),
        ({"value": 0.1}, "the threshold 0.1 is not a 32-bit number"),
        ({"images": 49}, "the numbers of calibration images do not add up"),
    ],
)
def test_a_threshold_that_contradicts_itself_is_found(metadata: Any, change: Any, words: Any) -> None:
    record = metadata.calibration
    forged = replace(metadata, calibration=replace(record, thresholds=(replace(record.thresholds[0], **change),)))
    with pytest.raises(MacsError, match=words):
        DetectorMetadata.from_json(told(forged), "d.safetensors")
