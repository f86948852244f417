"""Write what a reproduction came to: every table and figure as files, and as text for the terminal."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from macs import figures
from macs.core.files import write_text
from macs.metrics import get
from macs.paper import numbers, plots, writing
from macs.paper.comparison import Entry, Panel, entries, where
from macs.paper.grid import BY_TEST, BY_VALIDATION, FIXED, MACS, PARTS, UNBOUNDED
from macs.paper.reproduction import Lacking, Outcome


@dataclass(frozen=True)
class Publication:
    """One table or figure, written."""

    part: str
    title: str
    entries: list[Entry]
    notes: list[str]
    files: list[Path]

    def __rich__(self) -> RenderableType:
        return writing.terminal(self.title, self.entries, [*self.notes, *(str(file) for file in self.files)])

    def as_dict(self) -> dict[str, Any]:
        numbers_ = [asdict(entry) | {"difference": entry.difference} for entry in self.entries]
        files = [str(file) for file in self.files]
        return {"part": self.part, "title": self.title, "entries": numbers_, "notes": self.notes, "files": files}


def publish(parts: Sequence[str], outcome: Outcome) -> list[Publication]:
    """Each part as Markdown, CSV and LaTeX, and the figures as SVG, PDF and PNG, in the output folder."""
    return [_publish(part, outcome) for part in parts]


def _publish(part: str, outcome: Outcome) -> Publication:
    found = entries(part, outcome)
    name = f"{part[:-1].capitalize()} {part[-1]}"
    title = f"{name}, scale {outcome.setup.scale.name}: {numbers.about(name.lower()).title}"
    notes, files = _notes(part, outcome, found), []
    if part.startswith("figure"):
        try:
            files += figures.save(plots.draw(part, outcome, found), outcome.setup.out / part)
        except Lacking as reason:
            notes.append(f"Not drawn: {reason}")
    texts = {"md": writing.markdown, "tex": writing.latex} if found else {}
    for suffix, make in texts.items():
        files.append(outcome.setup.out / f"{part}.{suffix}")
        write_text(files[-1], make(title, found, notes))
    if found:
        files.append(outcome.setup.out / f"{part}.csv")
        write_text(files[-1], writing.comma_separated(found))
    return Publication(part, title, found, notes, files)


def _notes(part: str, outcome: Outcome, found: list[Entry]) -> list[str]:
    """What a reader must know to read the numbers rightly."""
    notes = [outcome.setup.scale.about]
    if part not in ("table5", "figure1", "figure3"):
        notes.append(
            "Ours: mean ± standard error of 10 draws of a fifth of the test images, as in the paper; "
            f"training seeds {', '.join(map(str, outcome.seeds))}."
        )
        if len(outcome.seeds) > 1:
            notes.append("seeds ±: standard deviation over the training seeds, which the draws know nothing of.")
        metrics = [get(name) for name in PARTS[part].metrics if name != "accuracy"]
        notes += [f"{metric.title}: {metric.convention}." for metric in metrics]
    rows = PARTS[part].rows
    if BY_TEST in rows:
        notes.append("MaCS* is test-chosen: its margin is the best on the OOD test sets, so it is not ranked.")
    places = where(part, outcome)
    for place in places if BY_VALIDATION in rows else []:
        try:
            by_validation, by_test = (outcome.chosen(place.id, place.net, on) for on in ("validation", "test"))
            notes.append(f"{place.title}: validation chose m = {by_validation:g}, the test sets m = {by_test:g}.")
            notes += outcome.plateaus(place.id, place.net) if part in ("table5", "figure4") else []
        except Lacking:
            pass  # the reasons stand below
    if part == "figure4":
        over = "training seeds (deviation)" if len(outcome.seeds) > 1 else "draws (standard error)"
        notes.append(f"Bars in the figure: over {over}; the star marks the validation-chosen margin.")
    for place in places if part == "figure5" else []:
        notes += _same_without_margin(outcome, place)
    notes += [note for id in dict.fromkeys(place.id for place in places) for note in outcome.notes.get(id, [])]
    if any(entry.paper is not None and not entry.comparable for entry in found):
        notes.append("No difference is given where sets are missing: the paper averages over more of them.")
    shown = {entry.block for entry in found if not entry.lacking}
    notes += [f"? {e.block}, {e.section or e.row} {e.metric}: {e.doubt}" for e in found if e.doubt and e.block in shown]
    return notes + list(dict.fromkeys(f"{entry.lacking}: {entry.why}" for entry in found if entry.lacking))


def _same_without_margin(outcome: Outcome, place: Panel) -> list[str]:
    """Below the plateau the margin bounds nothing, and Fig. 5 compares a network with itself."""
    try:
        (_, bounded), (_, unbounded) = (outcome.row(row, place.id, place.net) for row in (MACS, UNBOUNDED))
    except Lacking:
        return []
    if any(one.weights != other.weights for one, other in zip(bounded, unbounded, strict=True)):
        return []
    why = f"MCD never reached {FIXED}, so the margin never stopped the push"
    return [f"{place.title}: both rows are the same network bit for bit, since {why}."]
