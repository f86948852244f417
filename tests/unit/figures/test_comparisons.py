"""Comparisons of methods: the marks stand where the numbers say."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from macs import figures
from macs.core.errors import MacsError
from macs.figures import CostPoint, Gap

GAPS = [Gap("mean", "A", -2.0, 1.5), Gap("mean", "B", 1.0), Gap("SVHN", "A", -3.0, 0.5), Gap("SVHN", "B", 0.5, 0.25)]


def bars(axes: Axes) -> list[Any]:
    """The error bars of a panel, each with the lines of its mark, caps and bar."""
    return [container.lines for container in axes.containers]  # type: ignore[attr-defined]


def test_differences_stand_with_their_intervals() -> None:
    first, second = figures.gaps(GAPS, "OE", "FPR95").axes
    assert [axes.get_title() for axes in (first, second)] == ["mean", "SVHN"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["A", "B"]
    marks = [lines[0].get_xydata().tolist()[0] for lines in bars(first)]
    assert marks == [[-2.0, 0.0], [1.0, 1.0]]
    (bar,) = bars(first)[0][2][0].get_segments()
    assert bar[:, 0].tolist() == [-3.5, -0.5]
    assert bars(first)[1][2] == ()  # one seed has no interval
    assert bars(first)[1][0].get_markerfacecolor() == "white"


def test_a_heat_map_holds_every_number() -> None:
    values = np.arange(6).reshape(2, 3) + 0.25
    axes = figures.heat_map(["A", "B"], ["x", "y", "z"], values.tolist(), "FPR95").axes[0]
    assert [text.get_text() for text in axes.texts] == [f"{value:.1f}" for value in values.ravel()]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "z"]
    with pytest.raises(MacsError, match="heat map"):
        figures.heat_map(["A"], ["x"], [[1.0, 2.0]], "FPR95")


def test_quality_stands_over_cost() -> None:
    points = [CostPoint("A", 10.0, 30.0, 1.0), CostPoint("B", 20.0, 25.0)]
    axes = figures.quality_against_cost(points, "seconds", "FPR95").axes[0]
    assert [lines[0].get_xydata().tolist()[0] for lines in bars(axes)] == [[10, 30], [20, 25]]
    assert [text.get_text() for text in axes.texts] == ["A", "B"]
    with pytest.raises(MacsError, match="twice"):
        figures.quality_against_cost([points[0], points[0]], "seconds", "FPR95")


def test_names_of_close_points_do_not_cover_each_other() -> None:
    points = [CostPoint(f"training number {n}", 10.0 + n, 30.0 + 0.1 * n) for n in range(4)]
    axes = figures.quality_against_cost([*points, CostPoint("far", 100.0, 20.0)], "seconds", "FPR95").axes[0]
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
