"""Bounds, and numbers that are none."""

import math

import pytest

from macs.core.errors import MacsError
from macs.core.numbers import image_size, within


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.1])
@pytest.mark.parametrize("ends", ["[]", "()", "[)", "(]"])
def test_what_lies_outside_is_refused_with_the_bounds(value, ends):
    with pytest.raises(MacsError, match=r"The share must be (above|at least) 0 and (below|at most) 1, not"):
        within("The share", value, 0, 1, ends)


def test_the_ends_are_in_or_out():
    assert within("x", 0, 0, 1) == 0 and within("x", 1, 0, 1) == 1 and within("x", 0.5, 0, 1, "()") == 0.5
    for value in (0, 1):
        with pytest.raises(MacsError, match="above 0 and below 1"):
            within("x", value, 0, 1, "()")


def test_an_image_has_a_size_that_fits_into_memory():
    assert image_size(32) == 32
    for size in (0, -1, 10**9):
        with pytest.raises(MacsError, match=f"at least 1 and at most 1024, not {size}"):
            image_size(size)
