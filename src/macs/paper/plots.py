"""The paper's figures from our results, with the paper's own numbers where both measure the same."""

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from macs import figures
from macs.paper import numbers
from macs.paper.comparison import Entry, StandIn, confidences, stand_ins
from macs.paper.grid import MACS, ONLY_MCD, PARTS
from macs.paper.reproduction import Lacking, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(part: str, outcome: Outcome, entries: list[Entry]) -> "Figure":
    """Fig. 1, 3, 4 or 5. Incomplete panels are left out; if none is complete, the first reason is raised."""
    if part == "figure1":
        return _boxes(outcome)
    if part == "figure3":
        return _densities(outcome)
    source = f"ours, {outcome.setup.scale.name}"
    complete = [place for place in stand_ins(part, outcome) if _complete(place, entries)]
    if not complete:
        raise Lacking("missing", next(entry.why for entry in entries if entry.why))
    return _curves(outcome, complete, entries, source) if part == "figure4" else _bars(complete, entries, source)


def paper_boxes() -> list[figures.BoxGroup]:
    """Fig. 1 as printed."""
    boxes = {
        (box.method, box.data): figures.FiveNumbers(*(getattr(box, f.name) for f in fields(figures.FiveNumbers)))
        for box in numbers.boxes()
    }
    methods = dict.fromkeys(method for method, _ in boxes)
    return [figures.BoxGroup(m, "cifar100", "isun", boxes[m, "cifar100"], boxes[m, "isun"], "paper") for m in methods]


def paper_curves() -> list[figures.MarginCurve]:
    """Fig. 4 as printed, with the margins of Table 5."""
    chosen = {(margin.id, margin.net): margin.margin for margin in numbers.margins()}
    curves = numbers.margin_curves()
    return [
        figures.MarginCurve(**asdict(curve), chosen=chosen[curve.id, curve.net], source="paper") for curve in curves
    ]


def paper_bars() -> list[figures.BoundBar]:
    """Fig. 5 as printed."""
    rows = {True: MACS.label, False: ONLY_MCD.label}
    return [
        figures.BoundBar(bar.id, bar.metric, rows[bar.bounded], bar.value, source="paper") for bar in numbers.bars()
    ]


def _boxes(outcome: Outcome) -> "Figure":
    (place,) = stand_ins("figure1", outcome)
    ood = outcome.setup.scale.ood["isun"]
    groups = [
        figures.BoxGroup(
            row.label,
            place.id,
            ood,
            confidences(outcome, place, row, "id"),
            confidences(outcome, place, row, ood),
            f"ours, {outcome.setup.scale.name}",
        )
        for row in outcome.rows("figure1")
    ]
    return figures.confidence_boxes([*groups, *(paper_boxes() if place.itself else [])])


def _densities(outcome: Outcome) -> "Figure":
    """Rows are iSUN and SVHN on each network, columns MaCS and OE."""
    panels = []
    sets = [outcome.setup.scale.ood[name] for name in ("isun", "svhn")]
    pairs = [(place, ood) for ood in sets for place in stand_ins("figure3", outcome)]
    for line, (place, ood) in enumerate(pairs):
        for column, row in enumerate(outcome.rows("figure3")):
            conf_in, conf_out = (confidences(outcome, place, row, images) for images in ("id", ood))
            title = f"{row.label}, {place.net}"
            source = f"ours, {outcome.setup.scale.name}"
            panels.append(figures.DensityPanel(title, line, column, conf_in, conf_out, place.id, ood, source))
    return figures.densities(panels)


def _curves(outcome: Outcome, complete: list[StandIn], entries: list[Entry], source: str) -> "Figure":
    curves = []
    for place in complete:
        for metric in PARTS["figure4"].metrics:
            line = [entry for entry in entries if (entry.block, entry.metric) == (place.title, metric)]
            errors = [entry.draws_error if entry.seeds_deviation is None else entry.seeds_deviation for entry in line]
            curves.append(
                figures.MarginCurve(
                    place.id,
                    place.net,
                    metric,
                    list(outcome.setup.scale.margins),
                    [_known(entry.ours) for entry in line],
                    [_known(error) for error in errors],
                    outcome.chosen(place.id, place.net, "validation"),
                    source,
                )
            )
    own = {(place.id, place.net) for place in complete if place.itself}
    return figures.margin_curves([*curves, *(curve for curve in paper_curves() if (curve.id, curve.net) in own)])


def _bars(complete: list[StandIn], entries: list[Entry], source: str) -> "Figure":
    ids = {place.title: place.id for place in complete}
    own = {place.id for place in complete if place.itself}
    bars = [
        figures.BoundBar(ids[entry.block], entry.metric, entry.row, _known(entry.ours), entry.draws_error, source)
        for entry in entries
        if entry.block in ids and not entry.section
    ]
    return figures.bound_bars([*bars, *(bar for bar in paper_bars() if bar.id in own)])


def _complete(place: StandIn, entries: list[Entry]) -> bool:
    return not any(entry.lacking for entry in entries if entry.block == place.title)


def _known(value: float | None) -> float:
    assert value is not None, "only complete places are drawn"
    return value
