"""Plots as geometry: paths in a square of 1000 x 1000, which the page stretches, and ticks, which it sets as text.

Strokes are not stretched, and all words are text beside the square. So letters stay readable on a phone, colours follow
the reader's light or dark mode, and no plotting library is needed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.evaluation import Evaluation
from macs.evaluation.results import CURVE
from macs.metrics import RiskCoverage
from macs.report.findings import Judged, TrainingRecord
from macs.report.thresholds import ConfidenceArray, Thresholds, written

if TYPE_CHECKING:
    from macs.training.runs import Epoch


BINS = 200
SMOOTHING = 0.02  # standard deviation of the density's kernel, as a share of the axis
FAR = 3.0  # the axis extends beyond the range of the known confidences by at most this many times that range


@dataclass(frozen=True)
class Tick:
    at: float  # percent of the axis
    label: str


@dataclass(frozen=True)
class Curve:
    name: str
    style: str  # the style sheet's class for its colour and dashes
    path: str
    area: str = ""  # the outline to fill, if any


@dataclass(frozen=True)
class Chart:
    x_label: str
    y_label: str
    alt: str  # a description for those who cannot see it
    curves: list[Curve]
    x_ticks: list[Tick]
    y_ticks: list[Tick] = field(default_factory=list)


@dataclass(frozen=True)
class Axis:
    low: float
    high: float

    def at(self, values: ArrayLike) -> NDArray[np.float64]:
        """Positions between 0 and 1; values beyond an end are drawn at that end."""
        return np.clip((np.asarray(values, np.float64) - self.low) / (self.high - self.low), 0, 1)

    @classmethod
    def around(cls, low: float, high: float) -> Self:
        """An axis between two round numbers that enclose all values."""
        step = nice((high - low) / 15) if high > low else 0.5
        return cls(step * math.floor(low / step + 1e-9), step * (math.ceil(high / step - 1e-9) + (high == low)))

    def ticks(self, about: int = 5, percent: bool = False) -> list[Tick]:
        """Round numbers along the axis."""
        step = nice((self.high - self.low) / about)
        digits = max(0, -math.floor(math.log10(step)) - 2 * percent)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        places = [number * step for number in range(first, last + 1)]
        labels = [f"{100 * place:.{digits}f}%" if percent else f"{place:,.{digits}f}" for place in places]
        return [Tick(at, label) for at, label in zip(in_percent(self.at(places)), labels, strict=True)]


def nice(step: float) -> float:
    """The smallest of 1, 2 and 5 times a power of ten that is not below `step`."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def in_percent(places: NDArray[np.float64]) -> list[float]:
    return [round(100 * place, 2) for place in places.tolist()]


def confidence_axis(known: Judged, unknown: Sequence[Judged]) -> Axis:
    """From the lowest to the highest confidence, but not so far that the known images shrink to a line."""
    ends = [(float(judged.confidence.min()), float(judged.confidence.max())) for judged in (known, *unknown)]
    low, high = ends[0]
    far = FAR * (high - low or 1.0)
    low = max(low - far, min(low for low, _ in ends))
    high = min(high + far, max(high for _, high in ends))
    return Axis.around(low, high)


def path(x: ArrayLike, y: ArrayLike) -> str:
    """An SVG path through points of the unit square, with y upwards; repeated points are left out."""
    points = np.rint(1000 * np.stack([np.asarray(x, np.float64), 1 - np.asarray(y, np.float64)], axis=1)).astype(int)
    moved = np.any(np.diff(points, axis=0, prepend=points[:1] - 1) != 0, axis=1)
    corners = points[moved].tolist()
    if len(corners) == 1:
        corners *= 2  # a line from a point to itself is drawn as a dot
    return "M" + "L".join(f"{a} {b}" for a, b in corners)


def survival(thresholds: Thresholds, names: Sequence[str], styles: Sequence[str]) -> Chart:
    """The share of each set that a threshold keeps. The x axis is the slider's, with thresholds at equal distances."""
    last = max(len(thresholds.values) - 1, 1)
    places = np.arange(len(thresholds.values)) / last
    curves = [
        Curve(name, style, path(places, shares))
        for name, style, shares in zip(names, styles, thresholds.shares, strict=True)
    ]
    labels = [written(value) for value in thresholds.values]
    nearby = [np.flatnonzero(np.abs(places - part / 4) <= 0.03) for part in range(5)]
    marks = [min(near.tolist(), key=lambda index: len(labels[index])) for near in nearby if len(near)]
    ticks = [Tick(at, labels[mark]) for at, mark in zip(in_percent(places[marks]), marks, strict=True)]
    alt = f"The share of each set that is kept falls as the threshold rises from {ticks[0].label} to {ticks[-1].label}."
    return Chart("threshold, not to scale", "images kept", alt, curves, ticks, Axis(0, 1).ticks(percent=True))


def roc(thresholds: Thresholds, styles: Sequence[str], evaluation: Evaluation) -> Chart:
    """Share of unknown images caught against share of known images flagged, as the threshold rises."""
    flagged = 1 - thresholds.shares
    names = [result.name for result in evaluation.sets]
    curves = [
        Curve(name, style, path([*flagged[0], 1], [*caught, 1]))
        for name, style, caught in zip(names, styles, flagged[1:], strict=True)
    ]
    areas = ", ".join(f"{result.name} {100 * result.full.auroc:.2f}%" for result in evaluation.sets)
    alt = f"ROC curves; the areas under them are {areas}."
    ticks = Axis(0, 1).ticks(percent=True)
    return Chart("known images flagged", "unknown images caught", alt, curves, ticks, ticks)


def selective(evaluation: Evaluation, curve: RiskCoverage) -> Chart:
    """Draw the error rate among the most confident known images, against their share; at 100% it is that of all."""
    points = curve.at(CURVE)
    axis = Axis.around(0, max(*points["risk"], 1e-3))
    line = Curve(evaluation.id, "known", path(points["coverage"], axis.at(points["risk"])))
    alt = (
        "The error rate against the share of known images that are answered, the most confident first; the mean over "
        f"all shares, AURC, is {100 * curve.aurc:.2f}%."
    )
    shares, errors = Axis(0, 1).ticks(percent=True), axis.ticks(percent=True)
    return Chart("known images answered, the most confident first", "wrong among them", alt, [line], shares, errors)


def density(axis: Axis, known: Judged, unknown: Judged, style: str) -> Chart:
    """The distributions of the known and of one unknown set's confidences, with heights on a square-root scale."""
    heights = [np.sqrt(smoothed(axis.at(judged.confidence))) for judged in (known, unknown)]
    top = max(float(height.max()) for height in heights)
    middles = (np.arange(BINS) + 0.5) / BINS
    curves = []
    for judged, its_style, height in zip((known, unknown), ("known", style), heights, strict=True):
        line = path([0, *middles, 1], np.pad(height, 1, mode="edge") / top)
        curves.append(Curve(judged.title, its_style, line, f"{line}L1000 1000L0 1000Z"))
    medians = ", ".join(f"{np.median(judged.confidence):.3g} for {judged.title}" for judged in (known, unknown))
    return Chart("confidence", "", f"Distributions of the confidences; the median is {medians}.", curves, axis.ticks())


def smoothed(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """A density over [0, 1] as BINS heights: a histogram smoothed by a Gaussian kernel, reflected at both ends."""
    shares = np.histogram(places, BINS, (0, 1))[0] / len(places)
    width = SMOOTHING * BINS
    reach = math.ceil(4 * width)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    return np.convolve(np.pad(shares, reach, mode="symmetric"), kernel / kernel.sum(), "valid") * BINS


@dataclass(frozen=True)
class Box:
    """A set's confidences in five numbers: the 5%, 25%, 50%, 75% and 95% quantiles."""

    name: str
    style: str
    numbers: list[float]
    at: list[float]  # percent of the axis


def box(axis: Axis, name: str, style: str, confidences: ConfidenceArray) -> Box:
    numbers = np.quantile(confidences, [0.05, 0.25, 0.5, 0.75, 0.95])
    return Box(name, style, numbers.tolist(), in_percent(axis.at(numbers)))


@dataclass(frozen=True)
class Panel:
    title: str
    label: str
    columns: dict[str, str]  # name of a line -> field of an epoch
    low: float | None = None  # ends of the axis; by default those of the data
    high: float | None = None
    percent: bool = False
    limit: float | None = None


def training_curves(training: TrainingRecord) -> list[tuple[str, Chart]]:
    """Return the plots of a run's epochs, with their titles; outliers and validation may be missing."""
    epochs = training.epochs
    if not epochs:
        return []
    outliers = any(epoch.confidence_out for epoch in epochs)
    validated = all(epoch.validation_accuracy is not None for epoch in epochs)
    accuracies = {"training": "accuracy"} | ({"validation": "validation_accuracy"} if validated else {})
    confidences = {"known": "confidence_in"} | ({"outliers": "confidence_out"} if outliers else {})
    panels = [
        Panel("Loss", "what training minimises", {"loss": "loss"}),
        Panel("Accuracy", "images named correctly", accuracies, None, 1.0, percent=True),
        Panel("Confidence", "mean largest probability", confidences, 0.0, 1.0),
    ]
    if all(epoch.validation_auroc is not None for epoch in epochs):
        label = "validation images told from outliers (AUROC)"
        panels.append(Panel("Validation", label, {"AUROC": "validation_auroc"}, None, 1.0, percent=True))
    if outliers:
        highest = max(training.limit or 0.0, *(epoch.mcd for epoch in epochs))
        label = "mean squared lead (MCD)"
        panels.append(Panel("Confidence gap", label, {"gap": "mcd"}, 0.0, highest, limit=training.limit))
    return [(panel.title, _curves(panel, epochs)) for panel in panels]


def _curves(panel: Panel, epochs: "list[Epoch]") -> Chart:
    lines = {name: [getattr(epoch, key) for epoch in epochs] for name, key in panel.columns.items()}
    low = min(map(min, lines.values())) if panel.low is None else panel.low
    high = max(map(max, lines.values())) if panel.high is None else panel.high
    y_axis = Axis.around(low, high)
    numbers = [epoch.epoch for epoch in epochs]
    x_axis = Axis(numbers[0], max(numbers[-1], numbers[0] + 1))
    curves = [
        Curve(name, style, path(x_axis.at(numbers), y_axis.at(line)))
        for (name, line), style in zip(lines.items(), ("known", "s0"), strict=False)
    ]
    kept = next((epoch.epoch for epoch in epochs[:-1] if epoch.kept), None)  # the last one needs no mention
    if kept:
        curves.append(Curve(f"epoch {kept}, which is kept", "limit", path([x_axis.at(kept)] * 2, [0, 1])))
    if panel.limit:
        curves.append(Curve(f"margin {panel.limit:g}", "limit", path([0, 1], y_axis.at([panel.limit] * 2))))
    labelled = [number for number in numbers if number % -(-len(numbers) // 6) == 0] or numbers
    ticks = [Tick(round(100 * float(x_axis.at(number)), 2), str(number)) for number in labelled]
    ends = "; ".join(f"{name} goes from {line[0]:.3g} to {line[-1]:.3g}" for name, line in lines.items())
    alt = f"{panel.label}, over {len(epochs)} epochs: {ends}.{f' Epoch {kept} is kept.' if kept else ''}"
    return Chart("epoch", panel.label, alt, curves, ticks, y_axis.ticks(4, panel.percent))
