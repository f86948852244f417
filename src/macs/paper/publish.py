"""Write the results of a reproduction: every table and figure as files, and as text for the terminal."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from macs import figures
from macs.core.files import write_text
from macs.metrics import get
from macs.paper import numbers, plots, writing
from macs.paper.comparison import Entry, StandIn, entries, stand_ins
from macs.paper.grid import BY_TEST, BY_VALIDATION, FIXED, MACS, PARTS, UNBOUNDED
from macs.paper.reproduction import Lacking, Outcome


@dataclass(frozen=True)
class Publication:
    """One table or figure, and the files that it was written to."""

    part: str
    title: str
    entries: list[Entry]
    notes: list[str]
    files: list[Path]
    named: Callable[[Path], str] = str  # how files are called, if they end up elsewhere

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
    name = f"{part[:-1].capitalize()} {part[-1]}"
    title = f"{name}, scale {outcome.setup.scale.name}: {numbers.about(name.lower()).title}"
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
    notes = [outcome.setup.scale.about]
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
    rows = PARTS[part].rows
    if BY_TEST in rows:
        notes.append("MaCS* is test-chosen: its margin is the best on the OOD test sets, so it is not ranked.")
    places = stand_ins(part, outcome)
    for place in places if BY_VALIDATION in rows else []:
        try:
            by_validation, by_test = (outcome.chosen(place.id, place.net, on) for on in ("validation", "test"))
            notes.append(f"{place.title}: validation chose m = {by_validation:g}, the test sets m = {by_test:g}.")
            notes += outcome.plateaus(place.id, place.net) if part in ("table5", "figure4") else []
        except Lacking:
            pass  # the reasons are appended below
    if part == "figure4":
        over = "training seeds (deviation)" if len(outcome.seeds) > 1 else "draws (standard error)"
        notes.append(f"Bars in the figure: over {over}; the star marks the validation-chosen margin.")
    for place in places if part == "figure5" else []:
        notes += _same_without_margin(outcome, place)
    notes += [note for id in dict.fromkeys(place.id for place in places) for note in outcome.notes.get(id, [])]
    if any(entry.paper is not None and not entry.comparable for entry in part_entries):
        notes.append("No difference is given where sets are missing: the paper averages over more sets.")
    shown = {entry.block for entry in part_entries if not entry.lacking}
    notes += [
        f"? {e.block}, {e.section or e.row} {e.metric}: {e.doubt}" for e in part_entries if e.doubt and e.block in shown
    ]
    return notes + list(dict.fromkeys(f"{entry.lacking}: {entry.why}" for entry in part_entries if entry.lacking))


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
