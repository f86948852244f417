"""Comparisons of methods: the marks stand where the numbers say."""

import numpy as np
import pytest

from macs import figures
from macs.core.errors import MacsError
from macs.figures import CostPoint, Gap

GAPS = [Gap("mean", "A", -2.0, 1.5), Gap("mean", "B", 1.0), Gap("SVHN", "A", -3.0, 0.5), Gap("SVHN", "B", 0.5, 0.25)]


def test_differences_stand_with_their_intervals() -> None:
    first, second = figures.gaps(GAPS, "OE", "FPR95").axes
    assert [axes.get_title() for axes in (first, second)] == ["mean", "SVHN"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["A", "B"]
    marks = [container.lines[0].get_xydata().tolist()[0] for container in first.containers]
    assert marks == [[-2.0, 0.0], [1.0, 1.0]]
    (bar,) = first.containers[0].lines[2][0].get_segments()
    assert bar[:, 0].tolist() == [-3.5, -0.5]
    assert first.containers[1].lines[2] == ()  # one seed has no interval
    assert first.containers[1].lines[0].get_markerfacecolor() == "white"


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
    assert [container.lines[0].get_xydata().tolist()[0] for container in axes.containers] == [[10, 30], [20, 25]]
    assert [text.get_text() for text in axes.texts] == ["A", "B"]
    with pytest.raises(MacsError, match="twice"):
        figures.quality_against_cost([points[0], points[0]], "seconds", "FPR95")
