"""Comparisons of methods: differences to a reference with intervals, method x score, and quality against compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from macs.core.errors import MacsError
from macs.figures._drawing import COLUMN, PAGE, distinct, every, grid, look, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Gap:
    """A difference to the reference in points; `half_width` is that of its interval, None for a single seed."""

    panel: str
    method: str
    mean: float
    half_width: float | None = None


@dataclass(frozen=True)
class CostPoint:
    """One training: what it costs, and the metric in percent that it reaches."""

    method: str
    cost: float
    value: float
    error: float | None = None


@style()
def gaps(items: Sequence[Gap], reference: str, metric: str) -> "Figure":
    """One panel per OOD set, one line per method; a hollow mark has no interval, since it comes from one seed."""
    distinct(items, lambda gap: (gap.panel, gap.method), "difference")
    panels, methods = every(items, "panel"), every(items, "method")
    figure, axes = grid(1, len(panels), PAGE, height=0.8 + 0.2 * len(methods), sharey=True)
    for number, panel in enumerate(panels):
        place = axes[0, number]
        place.axvline(0, color="0.4", linewidth=0.8)
        for gap in (item for item in items if item.panel == panel):
            y = methods.index(gap.method)
            colour = look(0 if gap.mean < 0 else 4).colour
            face = "white" if gap.half_width is None else colour
            place.errorbar(
                gap.mean, y, xerr=gap.half_width, fmt="o", color=colour, markerfacecolor=face, elinewidth=1, capsize=2
            )
        place.set_title(panel)
        place.grid(axis="x")
        place.set_yticks(range(len(methods)), methods)
    axes[0, 0].set_ylim(len(methods) - 0.5, -0.5)
    figure.supxlabel(f"{metric} minus that of {reference}, in points", fontsize=8)
    return figure


@style()
def heat_map(rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float]], metric: str) -> "Figure":
    """A metric in percent for every method and score, lower is better, with the number in each field."""
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(rows), len(columns)) or not table.size:
        raise MacsError(f"A heat map of {len(rows)} rows and {len(columns)} columns cannot hold {table.shape} values.")
    width = max(PAGE, 2.5 + 0.36 * len(columns))  # a number stays inside its field
    figure, all_axes = grid(1, 1, width, height=1.2 + 0.22 * len(rows))
    axes = all_axes[0, 0]
    image = axes.imshow(table, cmap="viridis_r", aspect="auto")
    middle = (table.min() + table.max()) / 2
    for (row, column), value in np.ndenumerate(table):
        colour = "white" if value > middle else "black"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=6, color=colour)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axes.tick_params(length=0)
    figure.colorbar(image, ax=axes, label=metric, fraction=0.03, pad=0.01)
    return figure


@style()
def quality_against_cost(points: Sequence[CostPoint], cost: str, metric: str) -> "Figure":
    """One mark per training, named beside it."""
    distinct(points, lambda point: point.method, "training")
    figure, all_axes = grid(1, 1, COLUMN * 1.5, height=3.4)
    axes = all_axes[0, 0]
    for number, point in enumerate(points):
        own = look(number)
        axes.errorbar(point.cost, point.value, yerr=point.error, marker=own.marker, color=own.colour, linestyle="none")
    axes.set_xlabel(cost)
    axes.set_ylabel(metric)
    axes.margins(x=0.05, y=0.12)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high + 0.25 * (high - low))  # room for the names
    axes.grid()
    figure.draw_without_rendering()  # until then nothing has its place
    _name_points(axes, points)
    return figure


def _name_points(axes: "Axes", points: Sequence[CostPoint]) -> None:
    """Write each name to the right of its mark, a little higher or lower where it would cover a mark or a name."""
    from matplotlib.transforms import Bbox

    size = 3 * axes.figure.dpi / 72
    places = [axes.transData.transform((point.cost, point.value)) for point in points]
    taken = [Bbox([place - size, place + size]) for place in places]
    for point in points:
        name = axes.annotate(
            point.method, (point.cost, point.value), xytext=(5, 0), textcoords="offset points", va="center", fontsize=6
        )
        for height in sorted(range(-40, 41, 2), key=abs):
            name.xyann = (5, height)
            if not any(name.get_window_extent().overlaps(other) for other in taken):
                break
        taken.append(name.get_window_extent())
