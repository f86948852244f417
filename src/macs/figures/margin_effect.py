"""The paper's Figs. 4 and 5: the effect of the margin on detection. Metrics are in percent."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from macs.core.errors import MacsError
from macs.figures._drawing import (
    COLUMN,
    PAGE,
    Look,
    distinct,
    every,
    finish,
    grid,
    look,
    name,
    short,
    style,
    with_source,
)
from macs.metrics import available, get

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAR: dict[str, Any] = {"marker": "*", "linestyle": "none", "markeredgecolor": "black", "markeredgewidth": 0.6}


@dataclass(frozen=True)
class MarginCurve:
    """A line in Fig. 4: a metric in percent at each margin, and the margin that was chosen."""

    id: str
    net: str
    metric: str
    margins: Sequence[float]
    values: Sequence[float]
    errors: Sequence[float] | None = None
    chosen: float | None = None
    source: str = "ours"


@dataclass(frozen=True)
class BoundBar:
    """A bar in Fig. 5: a metric in percent, with the margin, without it, or of another variant of the term."""

    id: str
    metric: str
    variant: str
    value: float
    error: float | None = None
    source: str = "ours"


@style()
def margin_curves(curves: Sequence[MarginCurve]) -> "Figure":
    """Fig. 4: one row per ID set, one column per metric, one line per network; a star marks the chosen margin."""
    from matplotlib.lines import Line2D

    distinct(curves, lambda c: (c.id, c.net, c.metric, c.source), "curve")
    ids, nets, sources, metrics = every(curves, "id"), every(curves, "net"), every(curves, "source"), _metrics(curves)
    series = [(net, source) for net in nets for source in sources]
    figure, all_axes = grid(len(ids), len(metrics), PAGE, height=0.75 + 1.15 * len(ids), sharex=True)
    handles: dict[str, Any] = {}
    stars: Counter[Any] = Counter()
    for curve in curves:
        # Each network has its colour and marker, and each line its dashes; markers of a second source are hollow.
        number = series.index((curve.net, curve.source))
        colour, _, marker, _ = look(nets.index(curve.net))
        face = colour if curve.source == sources[0] else "white"
        line: dict[str, Any] = {"color": colour, "linestyle": look(number).line, "marker": marker}
        line["markerfacecolor"] = face
        axes = all_axes[ids.index(curve.id), metrics.index(curve.metric)]
        chosen = _chosen_index(curve)
        label = with_source(name(curve.net), curve.source, sources)
        axes.errorbar(curve.margins, curve.values, curve.errors, label=label, capsize=1.5, elinewidth=0.8, **line)
        if chosen is not None:
            point = curve.margins[chosen], curve.values[chosen]
            size = 9 * 0.65 ** stars[axes, point]  # a star on another is smaller, so that both are seen
            axes.plot(*point, **STAR, markerfacecolor=face, markersize=size, zorder=4 + number)
            stars[axes, point] += 1
        handles[label] = Line2D([], [], **line)
    if any(curve.chosen is not None for curve in curves):
        handles["chosen margin"] = Line2D([], [], **STAR, markersize=9, markerfacecolor="white")
    for (row, column), axes in np.ndenumerate(all_axes):
        axes.grid()
        axes.margins(y=0.12)  # room for the stars
        axes.locator_params(axis="y", nbins=6, steps=[1, 2, 5, 10])
        if row == 0:
            axes.set_title(_title(metrics[column]))
        if row == len(ids) - 1:
            axes.set_xlabel("Margin $m$")
        if column == 0:
            axes.set_ylabel(short(name(ids[row])), fontweight="bold")
    figure.align_ylabels()
    return finish(figure, handles, sources)


@style()
def bound_bars(bars: Sequence[BoundBar]) -> "Figure":
    """Fig. 5: one panel per metric, one group of bars per ID set, one bar per variant.

    Where all values are high, the axis starts above zero, and two strokes across it say so.
    """
    by_key = distinct(bars, lambda b: (b.id, b.metric, b.variant, b.source), "bar")
    ids, sources, metrics = every(bars, "id"), every(bars, "source"), _metrics(bars)
    series = [*dict.fromkeys((bar.variant, bar.source) for bar in bars)]
    pitch = 0.76 / len(series)
    width = COLUMN if len(ids) * len(series) <= 10 else PAGE  # the numbers on the bars need room
    figure, all_axes = grid(len(metrics), 1, width, height=0.5 + 1.25 * len(metrics), sharex=True)
    handles: dict[str, Any] = {}
    for metric, axes in zip(metrics, all_axes[:, 0], strict=True):
        ends = [end for bar in bars if bar.metric == metric for end in _ends(bar)]
        start = _axis_start(metric, min(ends))
        for number, (variant, source) in enumerate(series):
            label = with_source(variant, source, sources)
            for position, id in enumerate(ids):
                bar = by_key.get((id, metric, variant, source))
                if bar is not None:
                    x = position + (number - (len(series) - 1) / 2) * pitch
                    handles[label] = _draw_bar(axes, bar, x, 0.9 * pitch, start, look(number))
        _scale(axes, start, max(ends))
        axes.set_ylabel(_title(metric))
        axes.set_xticks(range(len(ids)), [short(name(id)) for id in ids])
        axes.tick_params(axis="x", length=0, labelsize=8)
    figure.align_ylabels()
    return finish(figure, handles, sources)


def _chosen_index(curve: MarginCurve) -> int | None:
    """The index of the curve's chosen margin."""
    what = f"{curve.metric} of {curve.net} on {curve.id}"
    if len({len(part) for part in (curve.margins, curve.values, curve.errors) if part is not None}) > 1:
        raise MacsError(f"The curve of {what} needs as many values and errors as margins; give one per margin.")
    if curve.chosen is None:
        return None
    matches = np.flatnonzero(np.isclose(curve.margins, curve.chosen))
    if not len(matches):
        raise MacsError(f"The curve of {what} has no margin {curve.chosen} to mark; choose one of its margins.")
    return int(matches[0])


def _ends(bar: BoundBar) -> tuple[float, float]:
    """Both ends of the error bar; the value twice if there is no error, or nan as for a single trial."""
    if not math.isfinite(bar.value):
        raise MacsError(f"The {bar.metric} on {bar.id} is {bar.value}, which cannot be drawn as a bar; leave it out.")
    error = bar.error if bar.error is not None and math.isfinite(bar.error) else 0.0
    return bar.value - error, bar.value + error


def _draw_bar(axes: "Axes", bar: BoundBar, x: float, width: float, start: float, look: Look) -> Any:
    handle = axes.bar(
        x, bar.value - start, width, start, color=look.colour, hatch=look.hatch, edgecolor="black", linewidth=0.5
    )
    low, high = _ends(bar)
    if high > low:
        axes.errorbar(x, bar.value, high - bar.value, color="black", capsize=1.5, elinewidth=0.8)
    above: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "va": "bottom"}
    axes.annotate(f"{bar.value:.2f}", (x, high), rotation=90, fontsize=6, **above)
    return handle


def _axis_start(metric: str, low: float) -> float:
    """Zero; or, if higher is better and all bars are high, a multiple of ten at least 4 below the lowest bar."""
    start = 10.0 * math.floor((low - 4) / 10)
    return start if start >= 50 and get(metric).better == "higher" else 0.0


def _scale(axes: "Axes", start: float, top: float) -> None:
    """Let the y axis begin at `start`, marked by strokes if not zero, and leave room for the numbers above the bars."""
    axes.set_ylim(start, start + 1.4 * (top - start or 1))
    ticks = [tick for tick in axes.get_yticks() if start <= tick <= 100]
    axes.set_yticks([tick for tick, before in zip(ticks, [start, *ticks], strict=False) if before <= top])
    if start > 0:
        stroke = [(-1.0, -0.5), (1.0, 0.5)]
        axes.plot(
            [0, 0], [0.03, 0.08], "k", marker=stroke, ms=6, mew=0.7, ls="", transform=axes.transAxes, clip_on=False
        )


def _metrics(items: Sequence[MarginCurve] | Sequence[BoundBar]) -> list[str]:
    """The metrics of these items in the order of our tables."""
    names = every(items, "metric")
    for metric_name in names:
        get(metric_name)  # an unknown name is an error
    return [metric.name for metric in available() if metric.name in names]


def _title(metric: str) -> str:
    title, arrow = get(metric).heading.rsplit(maxsplit=1)
    return f"{title} (%) {arrow}"
