"""The types of a label's fields, held to what JSON gave; `test_detector_files.py` forges whole files."""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pytest

from macs.data.preparation import NORMALISATIONS, Preparation
from macs.detector.calibration import Calibration, conformal_threshold
from macs.detector.label import FORMAT, MOST_IMAGES, VERSION, DetectorLabel, Misfit, fitted, wrong_names

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


@dataclass(frozen=True)
class Inner:
    name: str
    share: float
    count: int = 7


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (float, 3, 3.0),
        (float, MOST_IMAGES, float(MOST_IMAGES)),
        (int | None, None, None),
        (int | None, 5, 5),
        (tuple[int, ...], [1, 2], (1, 2)),
        (tuple[str, float], ["a", 1], ("a", 1.0)),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (dict[str, Any], {"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (Inner, {"name": "x", "share": 1}, Inner("x", 1.0)),
    ],
)
def test_what_fits_becomes_the_declared_type(kind: Any, value: Any, expected: Any) -> None:
    found = fitted(kind, value, "field")
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (int, True, "field must be a whole number, not 'True'"),
        (int, 1.0, "field must be a whole number, not '1.0'"),
        (int | None, "x", "field must be a whole number, not 'x'"),
        (float, float("nan"), "field must be a finite number, not 'nan'"),
        (float, MOST_IMAGES + 1, "field must be a finite number"),
        (str, 3, "field must be a text, not '3'"),
        (str, ["x"] * 999, "field must be a text, not .{42}$"),
        (tuple[int, ...], "12", "field must be a list$"),
        (tuple[int, ...], [1, "2"], r"field\[1\] must be a whole number"),
        (tuple[str, float], ["a"], "field must be a list of 2"),
        (dict[str, float], [], "field must be an object"),
        (dict[str, float], {"a": "b"}, r"field\.a must be a finite number"),
        (Inner, {"name": "x"}, "field must have the keys name, share, count"),
        (Inner, {"name": "x", "share": 1, "more": 1}, "field must have the keys name, share, count"),
        (Inner, {"name": "x", "share": "y"}, r"field\.share must be a finite number, not 'y'"),
        (Preparation, {"size": 0}, "field: size must be at least 1"),
    ],
)
def test_what_does_not_fit_is_named(kind: Any, value: Any, words: Any) -> None:
    with pytest.raises(Misfit, match=f"^{words}"):
        fitted(kind, value, "field")


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
