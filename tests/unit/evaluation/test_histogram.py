"""The histogram of `macs evaluate`: every image is counted once, and bars are as high as their counts."""

import numpy as np
import pytest

from macs.evaluation.histogram import ASCII, BINS, Histogram, bar


def test_every_image_is_counted_and_lies_where_its_confidence_is() -> None:
    random = np.random.default_rng(0)
    known, unknown = random.normal(5, 1, 1000).astype(np.float32), random.normal(0, 1, 300).astype(np.float32)
    histogram = Histogram.of("photos", known, {"textures": unknown})
    assert {name: sum(counts) for name, counts in histogram.counts.items()} == {"photos": 1000, "textures": 300}
    middles = np.linspace(histogram.low, histogram.high, BINS)
    means = {name: np.average(middles, weights=counts) for name, counts in histogram.counts.items()}
    assert abs(means["photos"] - known.mean()) < 0.2 and abs(means["textures"] - unknown.mean()) < 0.2
    lines = str(histogram).splitlines()
    assert lines[0].startswith("photos") and lines[0].endswith("1,000 images") and lines[2].endswith("confidence")
    assert all(line[len("textures") :][:2] == "  " for line in lines[:2])


def test_bars_grow_with_their_counts_and_none_that_holds_an_image_is_empty() -> None:
    assert bar((0, 1, 1000, 500)) == " ▁█▄"


def test_equal_confidences_and_equal_names_are_drawn() -> None:
    ones = np.ones(3, np.float32)
    histogram = Histogram.of("a", ones, {"a": ones})
    assert [sum(counts) for counts in histogram.counts.values()] == [3, 3]


@pytest.mark.parametrize("width", [20, 24, 40, 71, 72])
def test_no_line_is_wider_than_the_window(width: int) -> None:
    random = np.random.default_rng(0)
    known, unknown = random.normal(5, 1, 1000).astype(np.float32), random.normal(0, 1, 700).astype(np.float32)
    drawn = Histogram.of("photos", known, {"textures": unknown}).drawn(width, ASCII)
    lines = drawn.splitlines()
    assert max(map(len, lines)) <= width and drawn.isascii()
    assert len(lines) == (3 if width >= 72 else 6) and sum("1,000 images" in line for line in lines) == 1


def test_a_window_of_24_columns_gets_half_as_many_bars_that_hold_the_same_images() -> None:
    counts = (0, 3, *[0] * (BINS - 4), 1, 5)
    assert Histogram(0.0, 1.0, {"a": counts}).drawn(24).splitlines()[1] == bar((3, *[0] * (BINS // 2 - 2), 6))
