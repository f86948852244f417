"""The training curves, from a run's metrics.jsonl."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from macs.report.charts import Axis, Chart, Curve, Tick, path
from macs.report.findings import TrainingRecord

if TYPE_CHECKING:
    from macs.training.runs import Epoch


@dataclass(frozen=True)
class Panel:
    title: str
    label: str
    columns: dict[str, str]  # name of a line -> field of an epoch
    low: float | None = None  # ends of the axis; by default those of the data
    high: float | None = None
    percent: bool = False
    limit: float | None = None


def charts(training: TrainingRecord) -> list[tuple[str, Chart]]:
    """Return the plots with their titles, of what was measured: outliers and validation may be missing."""
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
    return [(panel.title, draw(panel, epochs)) for panel in panels]


def draw(panel: Panel, epochs: "list[Epoch]") -> Chart:
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
