"""Verdicts by p-values: the procedure of Benjamini and Hochberg, and the rate of false alarms that it keeps."""

import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

import macs
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector
from macs.detector.base import check_promise
from macs.detector.calibration import PValues
from macs.predictions import (
    Count,
    Predictions,
    Verdict,
    Verdicts,
    control_false_discoveries,
    highest_discovery,
)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.sampled_from([0.02, 0.05, 0.1, 0.3, 0.77]))
def test_scipys_procedure(ranks: list[int], fdr: float) -> None:
    p_values = np.array(ranks, np.float32) / np.float32(50)
    ours = p_values <= highest_discovery(p_values, fdr)
    adjusted = false_discovery_control(np.array(ranks) / 50)
    surely, possibly = adjusted <= fdr * (1 - 1e-9), adjusted <= fdr * (1 + 1e-9)  # scipy rounds too
    assert (ours >= surely).all() and (ours <= possibly).all()


def test_five_of_a_hundred_reach_a_level_of_a_twentieth() -> None:
    """In float32 5/100 is a little more than 0.05."""
    p = np.float32(5) / np.float32(100)
    assert float(p) > 0.05 and highest_discovery(np.array([p]), 0.05) == float(p)


def test_no_images_and_no_discoveries() -> None:
    assert highest_discovery(np.empty(0, np.float32), 0.1) == -1
    assert highest_discovery(np.array([0.5, 0.9], np.float32), 0.1) == -1


@pytest.mark.parametrize("fdr", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf])
def test_a_rate_that_cannot_be_promised_is_refused(detector: Detector, fdr: float) -> None:
    with pytest.raises(MacsError, match="The false discovery rate must be above 0 and below 1"):
        check_promise(detector.calibrated, None, fdr)


def test_the_realised_rate_stays_below_the_level() -> None:
    """Mean share of false alarms among 200 ID and 20 OOD images, each time with other calibration images."""
    random = np.random.default_rng(0)
    false, found = [], []
    for _ in range(300):
        calibration = Predictions(np.zeros(500, int), random.normal(size=500).astype(np.float32))
        reference = PValues.of(calibration, 1, per_class=False)
        values = np.concatenate([random.normal(size=200), random.normal(-4, 1, size=20)]).astype(np.float32)
        p_values = reference(Predictions(np.zeros(220, int), values))
        is_ood = p_values <= highest_discovery(p_values, 0.2)
        false.append(is_ood[:200].sum() / max(1, is_ood.sum()))
        found.append(is_ood[200:].mean())
    error = np.std(false) / np.sqrt(len(false))
    assert np.mean(false) < 0.2 + 3 * error  # at most, and about 0.2 * 200/220
    assert np.mean(false) > 0.05 and np.mean(found) > 0.8


ROWS = [
    Verdict("a", 0, "cat", 0.9, 0.8, is_ood=True),
    Verdict("b", reason="Cannot read b."),
    Verdict("c\ud800", 1, "dog", math.nan, 0.001, is_ood=False),
    Verdict("d", 0, "cat", 0.1, 0.002, is_ood=False),
]


def test_rows_wait_until_all_are_known() -> None:
    rows = list(control_false_discoveries(ROWS, 0.05))
    assert [row.path for row in rows] == ["a", "b", "c\ud800", "d"]
    assert [row.is_ood for row in rows] == [False, None, True, True]
    assert rows[1] == ROWS[1] and rows[3].confidence == 0.1


def test_leaving_early_ends_the_source() -> None:
    ended = []

    def source() -> Iterator[Verdict]:
        try:
            yield from ROWS
        finally:
            ended.append(True)

    rows = control_false_discoveries(source(), 0.05)
    next(rows)
    del rows
    gc.collect()
    assert ended


def test_a_row_has_the_fewest_digits_of_a_float32_and_no_p_value_that_is_none() -> None:
    confidences, p_values = np.array([0.1, 0.7], np.float32), np.array([np.nan, 1 / 3], np.float32)
    verdicts = Verdicts(
        np.array([1, 0]),
        confidences,
        p_values,
        is_ood=np.array([True, False]),
        classes=("cat", "dog"),
        threshold=np.array([0.2, np.nan], np.float32),
    )
    assert list(verdicts.rows(["x", "y"])) == [
        Verdict("x", 1, "dog", 0.1, None, 0.2, True),
        Verdict("y", 0, "cat", 0.7, 0.33333334, None, False),
    ]


def test_a_frame_has_one_row_per_image_and_the_names_of_every_other_format(
    detector: Detector, validation: ImageSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    verdicts = detector.predict(validation)
    frame = verdicts.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == ["index", "class", "confidence", "p_value", "threshold", "is_ood", "reason"]
    assert frame["index"].tolist() == verdicts.index.tolist() and frame["class"].tolist() == verdicts.class_
    for column, values in {
        "confidence": verdicts.confidence,
        "p_value": verdicts.p_value,
        "is_ood": verdicts.is_ood,
    }.items():
        np.testing.assert_array_equal(frame[column], values)
    assert set(frame["threshold"]) == {detector.thresholds().item()} and set(frame["reason"]) == {""}
    np.testing.assert_array_equal(frame["is_ood"], ~(frame["confidence"] >= frame["threshold"]))
    by_p_values = detector.predict(validation, fdr=0.5).to_frame()
    assert by_p_values["threshold"].isna().all() and by_p_values["is_ood"].dtype == bool
    monkeypatch.setattr("macs.predictions.find_spec", lambda _: None)
    with pytest.raises(MacsError, match=r"^to_frame needs pandas, which is not installed: pip install pandas\.$"):
        verdicts.to_frame()


def test_former_names_give_the_same_values_with_a_warning(detector: Detector, validation: ImageSet) -> None:
    verdicts = detector.predict(validation)
    former = {"predictions": "index", "labels": "index", "names": "class_", "confidences": "confidence"}
    for old, new in (former | {"p_values": "p_value", "thresholds": "threshold"}).items():
        with pytest.warns(DeprecationWarning, match=f"Verdicts.{old} is now called {new}"):
            assert list(getattr(verdicts, old)) == list(getattr(verdicts, new))
    row = next(verdicts.rows(["a.png"]))
    for old, new in {"label": "index", "name": "class_"}.items():
        with pytest.warns(DeprecationWarning, match=f"Verdict.{old} is now called {new}"):
            assert getattr(row, old) == getattr(row, new)
    with pytest.warns(DeprecationWarning, match="is now called Predictions"):
        assert macs.scores.Answers is Predictions


KNOWN, UNKNOWN = (
    Verdict("a.png", 2, "cat", 0.75, 0.5, is_ood=False),
    Verdict("b.png", 0, "dog", 0.25, 0.01, is_ood=True),
)
BROKEN = Verdict("c.png", reason="it is empty")


def test_rows_are_counted_one_by_one_before_they_are_handed_on() -> None:
    count = Count()
    rows = count.through(iter([KNOWN, UNKNOWN, BROKEN]))
    assert count.rows == 0
    for row, expected in ((KNOWN, (1, 0, 0)), (UNKNOWN, (2, 1, 0)), (BROKEN, (3, 1, 1))):
        assert next(rows) is row and (count.rows, count.ood, count.failed) == expected


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "0 images: 0 ID, 0 OOD"),
        ([KNOWN, UNKNOWN], "2 images: 1 ID, 1 OOD"),
        ([KNOWN, BROKEN], "2 images: 1 ID, 0 OOD, 1 could not be read (its row gives the reason)"),
        (
            [BROKEN] * 1200 + [UNKNOWN],
            "1,201 images: 0 ID, 1 OOD, 1,200 could not be read (their rows give the reason)",
        ),
    ],
)
def test_the_count_in_words(rows: Any, words: Any) -> None:
    count = Count()
    assert list(count.through(rows)) == rows and str(count) == words
