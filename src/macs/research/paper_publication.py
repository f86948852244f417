"""The paper's tables and figures from our results, as publications: numbers, notes and figures."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from macs import figures
from macs.metrics import get
from macs.research import paper_numbers as numbers
from macs.research.paper_grid import BY_TEST, BY_VALIDATION, FIXED, MACS, OE, ONLY_MCD, PARTS, UNBOUNDED, TableRow
from macs.research.paper_runs import Lacking, Reproduction
from macs.research.paper_tables import ComparedNumber, StandIn, confidences, entries, stand_ins, tables_of
from macs.research.publication import Publication, publish
from macs.research.seed_statistics import paired_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def publish_parts(parts: Sequence[str], done: Reproduction) -> list[Publication]:
    """Write each table or figure into the output folder."""
    return [_publish(part, done) for part in parts]


def _publish(part: str, done: Reproduction) -> Publication:
    part_entries = entries(part, done)
    name, subject = "Ablation", "what bounds the gap between confidences, and on which quantity"
    if part != "ablation":
        name = f"{part[:-1].capitalize()} {part[-1]}"
        subject = numbers.about(name.lower())["title"]
    as_released = ", as in the released code" if done.setup.scale.released else ""
    title = f"{name}, scale {done.setup.scale.name}{as_released}: {subject}"
    notes, drawn = _notes(part, done, part_entries), {}
    if part.startswith("figure"):
        try:
            drawn[part] = draw(part, done, part_entries)
        except Lacking as reason:
            notes.append(f"Not drawn: {reason}")
    return publish(publication_of(part, title, part_entries, notes), done.setup.out, drawn)


def publication_of(part: str, title: str, part_entries: list[ComparedNumber], notes: list[str]) -> Publication:
    """Return the publication of these numbers; on a terminal, at most two metrics with several columns fit."""
    records = [asdict(entry) | {"difference": entry.difference} for entry in part_entries]
    values = {"part": part, "title": title, "entries": records, "notes": notes}
    narrow = tables_of(part_entries, 2 if any(entry.paper is not None for entry in part_entries) else 9)
    return Publication(part, title, tables_of(part_entries), records, values, notes, narrow)


def _notes(part: str, done: Reproduction, part_entries: list[ComparedNumber]) -> list[str]:
    """Return what a reader needs to know to interpret the numbers."""
    notes = [done.setup.scale.about, done.setup.budget()]
    if part not in ("table5", "figure1", "figure3"):
        notes.append(
            "Ours: mean ± standard error of 10 draws of a fifth of the test images, as in the paper; "
            f"training seeds {', '.join(map(str, done.seeds))}."
        )
        if len(done.seeds) > 1:
            notes.append(
                "seeds ±: standard deviation over the training seeds, which the error of the draws leaves out."
            )
        metrics = [get(name) for name in PARTS[part].metrics if name != "accuracy"]
        notes += [metric.sentence for metric in metrics]
    rows = done.rows(part)
    if BY_TEST.name in (row.name for row in rows):
        notes.append("MaCS* is test-chosen: its margin is the best on the OOD test sets, so it is not ranked.")
    places = stand_ins(part, done)
    for place in places if BY_VALIDATION in rows or part == "figure4" else []:
        try:
            by_validation, by_test = (done.chosen(place.id, place.net, on) for on in ("validation", "test"))
            notes.append(f"{place.title}: validation chose m = {by_validation:g}, the test sets m = {by_test:g}.")
            notes += done.plateaus(place.id, place.net) if part in ("table5", "figure4") else []
        except Lacking:
            pass  # the reasons are appended below
    if part == "figure4":
        over = "training seeds (deviation)" if len(done.seeds) > 1 else "draws (standard error)"
        notes.append(f"Bars in the figure: over {over}; the star marks the validation-chosen margin.")
    for place in places if {MACS, UNBOUNDED} <= {*rows} else []:
        notes += _same_without_margin(done, place)
    for place in places if len(done.seeds) > 1 and {OE.name, MACS.name} <= {row.name for row in rows} else []:
        notes += _paired(done, place, rows)
    notes += [note for id in dict.fromkeys(place.id for place in places) for note in done.notes.get(id, [])]
    if any(entry.paper is not None and not entry.comparable for entry in part_entries):
        notes.append(
            "A difference is given only where budget, settings and OOD sets are the paper's: at the scale full for OE, "
            "and with --as-released for the paper's other rows and for ImageNet-32."
        )
    if any(entry.difference is not None for entry in part_entries):
        notes.append(
            "A difference includes what no option follows, above all SVHN's pixels, outliers in a fixed order, the "
            "pretraining and, for DivOE, clamped pixels: docs/paper-departures.md lists it."
        )
    shown = {entry.block for entry in part_entries if not entry.lacking}
    notes += [
        f"? {e.block}, {e.section or e.row} {e.metric}: {e.doubt}" for e in part_entries if e.doubt and e.block in shown
    ]
    return notes + list(dict.fromkeys(f"{entry.lacking}: {entry.why}" for entry in part_entries if entry.lacking))


def _paired(done: Reproduction, place: StandIn, rows: Sequence[TableRow]) -> list[str]:
    """Return the differences between MaCS and OE, seed by seed, with their confidence intervals."""
    by_name = {row.name: row for row in rows}
    try:
        pairs = [done.row(by_name[row.name], place.id, place.net)[1] for row in (MACS, OE)]
    except Lacking:
        return []
    notes = []
    for on in ("test", "near") if pairs[0][0].near is not None else ("test",):
        where = place.title if on == "test" else f"{place.title}, {pairs[0][0].of(on).sets[0].name} (near)"
        for metric in ("auroc", "fpr95"):
            ours, oe = ({seed: 100 * r.of(on).mean(metric) for seed, r in enumerate(results)} for results in pairs)
            difference = paired_difference(ours, oe)
            assert difference is not None  # both have all seeds
            each = ", ".join(f"{ours[seed] - oe[seed]:+.2f}" for seed in ours)
            notes.append(
                f"{where}: MaCS - OE in {get(metric).title}, on all test images, is {difference.mean:+.2f} ± "
                f"{difference.half_width:.2f} (95% interval over paired seeds; seed by seed {each})."
            )
    return notes


def _same_without_margin(done: Reproduction, place: StandIn) -> list[str]:
    """Return a note if MCD never reached the margin, so that Fig. 5 compares a network with itself."""
    try:
        (_, bounded), (_, unbounded) = (done.row(row, place.id, place.net) for row in (MACS, UNBOUNDED))
    except Lacking:
        return []
    if [result.weights for result in bounded] != [result.weights for result in unbounded]:
        return []
    why = f"MCD never reached {FIXED}, so the margin never stopped the push"
    return [f"{place.title}: both rows are the same network bit for bit, since {why}."]


def draw(part: str, done: Reproduction, entries: list[ComparedNumber]) -> "Figure":
    """Fig. 1, 3, 4 or 5. Incomplete panels are left out; if none is complete, the first reason is raised."""
    if part == "figure1":
        return _boxes(done)
    if part == "figure3":
        return _densities(done)
    source = f"ours, {done.setup.scale.name}"
    complete = [place for place in stand_ins(part, done) if _complete(place, entries)]
    if not complete:
        raise Lacking("missing", next(entry.why for entry in entries if entry.why))
    return _curves(done, complete, entries, source) if part == "figure4" else _bars(complete, entries, source)


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
    return [figures.MarginCurve(**asdict(c), chosen=chosen[c.id, c.net], source="paper") for c in curves]


def paper_bars() -> list[figures.BoundBar]:
    """Fig. 5 as printed."""
    rows = {True: MACS.label, False: ONLY_MCD.label}
    return [figures.BoundBar(b.id, b.metric, rows[b.bounded], b.value, source="paper") for b in numbers.bars()]


def _boxes(done: Reproduction) -> "Figure":
    (place,) = stand_ins("figure1", done)
    ood, source = done.setup.scale.ood["isun"], f"ours, {done.setup.scale.name}"
    groups = []
    for row in done.rows("figure1"):
        conf_in, conf_out = (confidences(done, place, row, images) for images in ("id", ood))
        groups.append(figures.BoxGroup(row.label, place.id, ood, conf_in, conf_out, source))
    return figures.confidence_boxes([*groups, *(paper_boxes() if place.itself else [])])


def _densities(done: Reproduction) -> "Figure":
    """Rows are iSUN and SVHN on each network, columns MaCS and OE."""
    panels = []
    sets = [done.setup.scale.ood[name] for name in ("isun", "svhn")]
    pairs = [(place, ood) for ood in sets for place in stand_ins("figure3", done)]
    for line, (place, ood) in enumerate(pairs):
        for column, row in enumerate(done.rows("figure3")):
            conf_in, conf_out = (confidences(done, place, row, images) for images in ("id", ood))
            title = f"{row.label}, {place.net}"
            source = f"ours, {done.setup.scale.name}"
            panels.append(figures.DensityPanel(title, line, column, conf_in, conf_out, place.id, ood, source))
    return figures.densities(panels)


def _curves(done: Reproduction, complete: list[StandIn], entries: list[ComparedNumber], source: str) -> "Figure":
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
                    list(done.setup.scale.margins),
                    [_known(entry.ours) for entry in line],
                    [_known(error) for error in errors],
                    done.chosen(place.id, place.net, "validation"),
                    source,
                )
            )
    own = {(place.id, place.net) for place in complete if place.itself}
    return figures.margin_curves([*curves, *(curve for curve in paper_curves() if (curve.id, curve.net) in own)])


def _bars(complete: list[StandIn], entries: list[ComparedNumber], source: str) -> "Figure":
    ids = {place.title: place.id for place in complete}
    own = {place.id for place in complete if place.itself}
    bars = [
        figures.BoundBar(ids[entry.block], entry.metric, entry.row, _known(entry.ours), entry.draws_error, source)
        for entry in entries
        if entry.block in ids and not entry.section
    ]
    return figures.bound_bars([*bars, *(bar for bar in paper_bars() if bar.id in own)])


def _complete(place: StandIn, entries: list[ComparedNumber]) -> bool:
    return not any(entry.lacking for entry in entries if entry.block == place.title)


def _known(value: float | None) -> float:
    assert value is not None, "only complete places are drawn"
    return value
