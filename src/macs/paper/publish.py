"""Write the results of a reproduction: every table and figure as files, and as text for the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from macs import figures
from macs.core.files import write_text
from macs.experiments.statistics import paired_difference
from macs.metrics import get
from macs.paper import numbers, plots, writing
from macs.paper.comparison import Entry, StandIn, entries, stand_ins
from macs.paper.grid import BY_TEST, BY_VALIDATION, FIXED, MACS, OE, PARTS, UNBOUNDED, TableRow
from macs.paper.reproduction import Lacking, Outcome


@dataclass(frozen=True)
class Publication:
    """One table or figure, and the files that it was written to."""

    part: str
    title: str
    entries: list[Entry]
    notes: list[str]
    files: list[Path]
    named: Callable[[Path], str] = str  # a file as users know it: it may be behind a URL

    def __rich__(self) -> RenderableType:
        return writing.terminal(self.title, self.entries, [*self.notes, *map(self.named, self.files)])

    def as_dict(self) -> dict[str, Any]:
        records = [asdict(entry) | {"difference": entry.difference} for entry in self.entries]
        files = [self.named(file) for file in self.files]
        return {"part": self.part, "title": self.title, "entries": records, "notes": self.notes, "files": files}


def publish(parts: Sequence[str], outcome: Outcome) -> list[Publication]:
    """Write each part as Markdown, CSV and LaTeX, and figures also as SVG, PDF and PNG, into the output folder."""
    return [_publish(part, outcome) for part in parts]


def _publish(part: str, outcome: Outcome) -> Publication:
    part_entries = entries(part, outcome)
    name, subject = "Ablation", "what bounds the gap between confidences, and on which quantity"
    if part != "ablation":
        name = f"{part[:-1].capitalize()} {part[-1]}"
        subject = numbers.about(name.lower()).title
    as_released = ", as in the released code" if outcome.setup.scale.released else ""
    title = f"{name}, scale {outcome.setup.scale.name}{as_released}: {subject}"
    notes, files = _notes(part, outcome, part_entries), []
    if part.startswith("figure"):
        try:
            files += figures.save(plots.draw(part, outcome, part_entries), outcome.setup.out / part)
        except Lacking as reason:
            notes.append(f"Not drawn: {reason}")
    texts = {"md": writing.markdown, "tex": writing.latex} if part_entries else {}
    for suffix, make in texts.items():
        files.append(outcome.setup.out / f"{part}.{suffix}")
        write_text(files[-1], make(title, part_entries, notes))
    if part_entries:
        files.append(outcome.setup.out / f"{part}.csv")
        write_text(files[-1], writing.comma_separated(part_entries))
    return Publication(part, title, part_entries, notes, files)


def _notes(part: str, outcome: Outcome, part_entries: list[Entry]) -> list[str]:
    """What a reader needs to know to interpret the numbers."""
    notes = [outcome.setup.scale.about, outcome.setup.budget()]
    if part not in ("table5", "figure1", "figure3"):
        notes.append(
            "Ours: mean ± standard error of 10 draws of a fifth of the test images, as in the paper; "
            f"training seeds {', '.join(map(str, outcome.seeds))}."
        )
        if len(outcome.seeds) > 1:
            notes.append(
                "seeds ±: standard deviation over the training seeds, which the error of the draws leaves out."
            )
        metrics = [get(name) for name in PARTS[part].metrics if name != "accuracy"]
        notes += [f"{metric.title}: {metric.convention}." for metric in metrics]
    rows = outcome.rows(part)
    if BY_TEST.name in (row.name for row in rows):
        notes.append("MaCS* is test-chosen: its margin is the best on the OOD test sets, so it is not ranked.")
    places = stand_ins(part, outcome)
    for place in places if BY_VALIDATION in rows or part == "figure4" else []:
        try:
            by_validation, by_test = (outcome.chosen(place.id, place.net, on) for on in ("validation", "test"))
            notes.append(f"{place.title}: validation chose m = {by_validation:g}, the test sets m = {by_test:g}.")
            notes += outcome.plateaus(place.id, place.net) if part in ("table5", "figure4") else []
        except Lacking:
            pass  # the reasons are appended below
    if part == "figure4":
        over = "training seeds (deviation)" if len(outcome.seeds) > 1 else "draws (standard error)"
        notes.append(f"Bars in the figure: over {over}; the star marks the validation-chosen margin.")
    for place in places if {MACS, UNBOUNDED} <= {*rows} else []:
        notes += _same_without_margin(outcome, place)
    for place in places if len(outcome.seeds) > 1 and {OE.name, MACS.name} <= {row.name for row in rows} else []:
        notes += _paired(outcome, place, rows)
    notes += [note for id in dict.fromkeys(place.id for place in places) for note in outcome.notes.get(id, [])]
    if any(entry.paper is not None and not entry.comparable for entry in part_entries):
        notes.append(
            "A difference is given only where budget, settings and OOD sets are the paper's: at the scale full for OE, "
            "and with --as-released for the paper's other rows."
        )
    shown = {entry.block for entry in part_entries if not entry.lacking}
    notes += [
        f"? {e.block}, {e.section or e.row} {e.metric}: {e.doubt}" for e in part_entries if e.doubt and e.block in shown
    ]
    return notes + list(dict.fromkeys(f"{entry.lacking}: {entry.why}" for entry in part_entries if entry.lacking))


def _paired(outcome: Outcome, place: StandIn, rows: Sequence[TableRow]) -> list[str]:
    """The differences between MaCS and OE, seed by seed, with their confidence intervals."""
    by_name = {row.name: row for row in rows}
    try:
        pairs = [outcome.row(by_name[row.name], place.id, place.net)[1] for row in (MACS, OE)]
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


def _same_without_margin(outcome: Outcome, place: StandIn) -> list[str]:
    """A note if MCD never reached the margin, so that Fig. 5 compares a network with itself."""
    try:
        (_, bounded), (_, unbounded) = (outcome.row(row, place.id, place.net) for row in (MACS, UNBOUNDED))
    except Lacking:
        return []
    if [result.weights for result in bounded] != [result.weights for result in unbounded]:
        return []
    why = f"MCD never reached {FIXED}, so the margin never stopped the push"
    return [f"{place.title}: both rows are the same network bit for bit, since {why}."]
