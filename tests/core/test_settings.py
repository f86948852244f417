"""Bounds, and numbers that are none."""

import math

import pytest

from macs.core.errors import MacsError
from macs.core.settings import Span


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.1])
@pytest.mark.parametrize("ends", ["neither", "least", "most", "both"])
def test_what_lies_outside_is_refused_with_the_bounds(value, ends):
    with pytest.raises(MacsError, match=r"The share must be (above|at least) 0 and (below|at most) 1, not"):
        Span(0, 1, open=ends).hold("The share", value)


@pytest.mark.parametrize(
    ("ends", "within"),
    [("neither", {0, 0.5, 1}), ("least", {0.5, 1}), ("most", {0, 0.5}), ("both", {0.5})],
)
def test_the_ends_are_in_or_out(ends, within):
    assert {value for value in (0, 0.5, 1) if value in Span(0, 1, open=ends)} == within
