"""Verdicts label by label: their definition, and the share of rows with a label that is found."""

import numpy as np
import pytest

from macs import FeatureDetector, MacsError
from macs.detector import LabelThresholds


def test_each_threshold_is_an_order_statistic_of_the_rows_with_the_label() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.normal(size=(300, 4)).astype(np.float32), random.integers(0, 2, (300, 4))
    thresholds = LabelThresholds.of(logits, labels, keep=0.9)
    for label, threshold in enumerate(thresholds.thresholds):
        own = np.sort(logits[labels[:, label] == 1, label])
        assert threshold.value == own[int((len(own) + 1) * 0.1) - 1]
        assert (thresholds(logits)[:, label] == (logits[:, label] >= threshold.value)).all()


def test_rows_with_a_label_are_found_as_often_as_promised() -> None:
    random = np.random.default_rng(1)
    found = []
    for _ in range(400):
        labels = random.integers(0, 2, (61, 2))
        logits = random.normal(2 * labels, [1, 3])
        reported = LabelThresholds.of(logits[:-1], labels[:-1], keep=0.8)(logits[-1:])
        found += reported[labels[-1:] == 1].tolist()
    assert 0.8 - 3 * np.sqrt(0.16 / len(found)) < np.mean(found) < 0.8 + 1 / 20 + 3 * np.sqrt(0.16 / len(found))


def test_joint_energy_keeps_rows_of_any_number_of_labels() -> None:
    random = np.random.default_rng(2)
    labels = np.eye(3)[random.integers(0, 3, 600)]
    labels[:300] = 1  # half of the rows have all labels
    logits = random.normal(8 * labels - 4, 0.5)
    detector = FeatureDetector("joint-energy").calibrate(logits=logits[::2])
    assert not detector.predict(logits=logits[1::2]).is_ood[:150].any()
    assert detector.predict(logits=np.full((5, 3), -4.0)).is_ood.all()


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        ([[1, 2], [3]], [[1, 0]], "must be one array of numbers, but its rows differ"),
        (np.zeros((30, 2)), np.zeros((30, 3)), "zeros and ones of the shape of the logits"),
        (np.zeros((30, 2)), np.full((30, 2), 2), "zeros and ones"),
        (np.zeros((30, 2)), np.eye(30)[:, :2], r"these have fewer: 0 \(1\), 1 \(1\)"),
        (np.full((30, 2), np.nan), np.ones((30, 2)), "NaN"),
    ],
)
def test_wrong_values_are_named(logits: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(MacsError, match=message):
        LabelThresholds.of(logits, labels)
