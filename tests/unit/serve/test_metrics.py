"""What /metrics tells, counted by hand; the share of OOD images over sliding windows; the drift signal."""

import math

import numpy as np
import pytest

from macs.serve.metrics import SlidingShare


def test_a_sliding_share_is_that_of_the_last_seconds() -> None:
    now = 0.0
    share = SlidingShare(lambda: now)
    assert math.isnan(share.over(60))
    random = np.random.default_rng(0)
    told: list[tuple[float, int, int]] = []
    for _ in range(2000):
        now += float(random.exponential(3))
        images = int(random.integers(1, 5))
        told.append((now, images, int(random.integers(0, images + 1))))
        share.add(*told[-1][1:])
    for window in (60, 600, 3600):
        recent = [(images, ood) for moment, images, ood in told if int(moment) > int(now) - window]
        expected = sum(ood for _, ood in recent) / sum(images for images, _ in recent)
        assert share.over(window) == pytest.approx(expected)
    now += 4000
    assert math.isnan(share.over(3600))
    share.add(2, 1)
    assert share.over(60) == 0.5
