"""The fields of a label and their types; `test_detector_files.py` forges whole files."""

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from macs.data.preparation import NORMALISATIONS, Preparation
from macs.detector.calibration import Calibration, conformal_threshold
from macs.detector.label import FORMAT, VERSION, DetectorLabel, Misfit, wrong_names

CONFIDENCES = np.random.default_rng(0).random(50, dtype=np.float32)


@pytest.fixture
def label() -> DetectorLabel:
    record = Calibration(0.9, "knn", "validation", 50, (conformal_threshold(CONFIDENCES, 0.9),))
    preparation = Preparation(16).normalised(NORMALISATIONS["half"])
    return DetectorLabel(FORMAT, VERSION, "0.1", "wrn-10-1", ("a", "b"), preparation, "knn", record, None, {"k": 3})


def told(label: DetectorLabel) -> dict[str, Any]:
    return json.loads(json.dumps(asdict(label)))


def test_a_label_is_the_same_after_a_round_through_json(label: Any) -> None:
    assert DetectorLabel.from_json(told(label)) == label
    without = told(label)
    del without["settings"]  # as before version 3
    assert DetectorLabel.from_json(without) == replace(label, settings={})


@pytest.mark.parametrize(
    ("net", "values", "expected"),
    [
        ("wrn-10-1", None, "oe"),
        ("mine:Net", None, "none"),
        ("wrn-10-1", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}, "half"),
    ],
)
def test_an_older_label_had_words_in_place_of_a_preparation(label: Any, net: Any, values: Any, expected: Any) -> None:
    old = told(label) | {"version": 2, "net": net, "size": 24, "preparation": "RGB, resized to 24 pixels"}
    old |= {} if values is None else {"normalisation": values}
    assert DetectorLabel.from_json(old).preparation == Preparation(24).normalised(NORMALISATIONS[expected])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": True}, "version must be a whole number, not True"),
        ({"classes": "ab"}, "classes must be a list, not 'ab'"),
        ({"classes": ["a", 2]}, r"classes\[1\] must be text, not 2"),
        ({"preparation": {"size": 0}}, "preparation.size must be at least 1"),
        ({"calibration": 3}, "calibration must be a table of settings, not 3"),
        ({"calibration": {"keep": 0.9}}, "A Calibration needs the setting score"),
        ({"choice": {"score": "knn"}}, "A Choice needs the setting data"),
        ({"more": 1}, "There is no setting of DetectorLabel called 'more'"),
    ],
)
def test_a_field_of_another_type_is_named(label: Any, change: dict[str, Any], words: str) -> None:
    with pytest.raises(Misfit, match=f"^{words}"):
        DetectorLabel.from_json(told(label) | change)


@pytest.mark.parametrize("keep", [float("nan"), float("inf"), "0.9", None, [0.9]])
def test_a_number_inside_a_record_must_be_finite(label: Any, keep: Any) -> None:
    values = told(label)
    values["calibration"]["keep"] = keep
    with pytest.raises(Misfit, match="^calibration.keep must be a number, not"):
        DetectorLabel.from_json(values)


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
def test_a_threshold_that_contradicts_itself_is_found(label: Any, change: Any, words: Any) -> None:
    record = label.calibration
    forged = replace(label, calibration=replace(record, thresholds=(replace(record.thresholds[0], **change),)))
    with pytest.raises(Misfit, match=words):
        DetectorLabel.from_json(told(forged))
