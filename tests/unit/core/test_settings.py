"""Bounds, numbers that are none, and settings inside settings."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import pytest

from macs.core.errors import MacsError
from macs.core.settings import Span, check, from_dict


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.1, 1.1])
@pytest.mark.parametrize("ends", ["neither", "least", "most", "both"])
def test_what_lies_outside_is_refused_with_the_bounds(value: float, ends: Any) -> None:
    with pytest.raises(MacsError, match=r"The share must be (above|at least) 0 and (below|at most) 1, not"):
        Span(0, 1, open=ends).hold("The share", value)


@pytest.mark.parametrize(
    ("ends", "within"),
    [("neither", {0, 0.5, 1}), ("least", {0.5, 1}), ("most", {0, 0.5}), ("both", {0.5})],
)
def test_the_ends_are_in_or_out(ends: Any, within: set[float]) -> None:
    assert {value for value in (0, 0.5, 1) if value in Span(0, 1, open=ends)} == within


@dataclass(frozen=True)
class Step:
    length: Annotated[int, Span(1, 9)]

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Walk:
    start: tuple[float, float]
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check(self)


def test_settings_inside_settings_survive_json() -> None:
    walk = Walk((0, 1.5), (Step(1), Step(2)))
    assert from_dict(Walk, json.loads(json.dumps(asdict(walk)))) == walk
    assert walk.start == (0.0, 1.5) and isinstance(walk.start[0], float)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (3, "A Walk must be a table of settings, not 3"),
        ({}, "A Walk needs the setting start"),
        ({"start": [1, 2], "step": []}, "no setting of Walk called 'step' .*did you mean 'steps'"),
        ({"start": [1]}, "start must be a list of 2"),
        ({"start": [1, "x"]}, r"start\[1\] must be a number"),
        ({"start": [1, 2], "steps": 1}, "steps must be a list, not 1"),
        ({"start": [1, 2], "steps": [1]}, r"steps\[0\] must be a table of settings, not 1"),
        ({"start": [1, 2], "steps": [{"length": 10}]}, "length must be at least 1 and at most 9"),
    ],
)
def test_what_does_not_fit_is_named(told: Any, why: str) -> None:
    with pytest.raises(MacsError, match=why):
        from_dict(Walk, told)
