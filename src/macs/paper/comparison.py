"""The paper's tables from our results: the paper's number, ours, and the difference.

A table or figure is a list of `Entry`, one per number, which macs.paper.writing turns into text. All numbers are in
percent, as in the paper. Ours follow the paper's protocol: the mean of ten draws of a fifth of the test images. The
standard error over the draws and the standard deviation over training seeds are different things and are kept apart.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from macs.evaluation import Evaluation
from macs.experiments.cells import Result
from macs.experiments.margins import Choice
from macs.metrics import deviation, mean_and_error
from macs.paper import numbers
from macs.paper.grid import MACS, ONLY_MCD, PARTS, TableRow, places
from macs.paper.reproduction import Lacking, Outcome

WITH_NEAR = ("table1", "table2", "table6", "table7", "figure5", "ablation")
QUARTILES = {"quartile_low": 25, "median": 50, "quartile_high": 75}


@dataclass(frozen=True)
class StandIn:
    """An ID set and network that were run, and those of the paper that they stand for."""

    id: str
    net: str
    papers: tuple[tuple[str, str], ...]

    @property
    def itself(self) -> bool:
        """Whether it is the paper's own ID set and network, so that numbers may be compared."""
        return self.papers == ((self.id, self.net),)

    @property
    def title(self) -> str:
        ids, nets = (", ".join(dict.fromkeys(names)) for names in zip(*self.papers, strict=True))
        return f"{self.id} on {self.net}" + ("" if self.itself else f" (for {ids} on {nets})")


@dataclass(frozen=True)
class Entry:
    """One number of a table or figure: its place, and its value in the paper and here."""

    part: str
    id: str
    net: str
    block: str  # title of the rows that belong together
    section: str  # the images that it was measured on, unless it is an average over OOD sets
    row: str
    metric: str
    margin: float | None = None
    ranked: bool = True  # test-chosen numbers are not ranked
    paper: float | None = None
    paper_error: float | None = None
    doubt: str = ""  # why the printed number may be wrong
    ours: float | None = None
    draws_error: float | None = None  # standard error over draws of test images
    seeds: int = 0
    seeds_deviation: float | None = None  # standard deviation over training seeds
    full: float | None = None  # on all test images
    comparable: bool = False  # whether ours has the paper's budget, settings and sets
    lacking: str = ""  # why there is no number of ours, in one word
    why: str = ""  # and in a sentence

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, where both measure the same."""
        if self.ours is None or self.paper is None or not self.comparable:
            return None
        return self.ours - self.paper


def entries(part: str, outcome: Outcome) -> list[Entry]:
    """All numbers of a table or figure; Fig. 3 has none."""
    makers = {"table3": _by_ood_set, "table4": _by_ood_set, "table5": _margins, "figure1": _boxes}
    if part == "figure3":
        return []
    return list(makers.get(part, _averages)(part, outcome))


def stand_ins(part: str, outcome: Outcome) -> list[StandIn]:
    """The ID sets and networks of a table or figure, in its order."""
    run = places(PARTS[part], outcome.setup.scale, outcome.only)
    return [StandIn(id, net, tuple(papers)) for (id, net), papers in run.items()]


def _averages(part: str, outcome: Outcome) -> Iterator[Entry]:
    """Means over the OOD sets: Tables 1, 2, 6 and 7, Figs. 4 and 5."""
    scale, rows = outcome.setup.scale, outcome.rows(part)
    if part == "figure4":
        rows = tuple(replace(MACS, label=f"m = {margin:g}", margin=margin) for margin in scale.margins)
    for place in stand_ins(part, outcome):
        for row in rows:
            for metric in PARTS[part].metrics:
                yield _entry(part, outcome, place, row, metric, None)
        near = scale.near.get(place.id, "") if part in WITH_NEAR else ""
        for row in rows if near else ():
            for metric in PARTS[part].metrics:
                yield _entry(part, outcome, place, row, metric, None, near)


def _by_ood_set(part: str, outcome: Outcome) -> Iterator[Entry]:
    """Each OOD set on its own: Tables 3 and 4."""
    printed = {cell.ood for cell in numbers.table(int(part[-1]))}
    for place in stand_ins(part, outcome):
        for name in (name for name in outcome.setup.scale.ood_sets(place.id) if name in printed):
            for row in outcome.rows(part):
                for metric in PARTS[part].metrics:
                    yield _entry(part, outcome, place, row, metric, name)


def _entry(
    part: str, outcome: Outcome, place: StandIn, row: TableRow, metric: str, ood: str | None, near: str = ""
) -> Entry:
    """A row's metric: averaged over the OOD sets, on the set that stands for the paper's `ood`, or on a near set."""
    scale = outcome.setup.scale
    ours = near or (scale.ood[ood] if ood else "")
    section = f"{near} (near)" if near else ours
    entry = Entry(part, place.id, place.net, place.title, section, row.label, metric, ranked=row.margin != "test")
    if near and metric == "accuracy":
        return entry  # it stands among the averages
    if place.itself and not near:
        entry = _with_paper(entry, place, row, ood)
    try:
        margin, results = outcome.row(row, place.id, place.net)
        tests = [_near(result, near) if near else result.of("test") for result in results]
        values = [_values(test, metric, ours) for test in tests]
    except Lacking as reason:
        return replace(entry, lacking=reason.word, why=str(reason))
    means, errors = zip(*(mean_and_error([100 * value for value in draws]) for draws, _ in values), strict=True)
    averaged = not ours and metric != "accuracy"
    complete = not averaged or {s.name for s in tests[0].sets} == set(scale.ood_sets(place.id).values())
    return replace(
        entry,
        margin=margin,
        ours=float(np.mean(means)),
        draws_error=float(np.mean(errors)),
        seeds=len(means),
        seeds_deviation=deviation(means) if len(means) > 1 else None,
        full=100 * float(np.mean([full for _, full in values])),
        comparable=complete and _comparable(outcome, row),
    )


def _near(result: Result, name: str) -> Evaluation:
    if result.near is None:
        raise Lacking("missing", f"{name} was not measured")
    return result.near


def _comparable(outcome: Outcome, row: TableRow) -> bool:
    """Whether a row has the budget and the settings of the paper's."""
    return outcome.setup.scale.as_printed and row.as_printed


def _values(evaluation: Evaluation, metric: str, ood: str) -> tuple[list[float], float]:
    """The metric in each draw and on all test images."""
    if metric == "accuracy":
        return evaluation.draw_accuracies, evaluation.accuracy
    if not ood:
        return evaluation.draw_means(metric), evaluation.mean(metric)
    for result in evaluation.sets:
        if result.name == ood:
            return [getattr(draw, metric) for draw in result.draws], getattr(result.full, metric)
    raise Lacking("missing", f"{ood} was not measured")


def _with_paper(entry: Entry, place: StandIn, row: TableRow, ood: str | None) -> Entry:
    """The entry with the number that the paper prints for it, if any."""
    if entry.part == "figure4":
        for curve in numbers.margin_curves():
            if (curve.id, curve.net, curve.metric) == (place.id, place.net, entry.metric):
                by_margin: dict[object, float] = dict(zip(curve.margins, curve.values, strict=True))
                return replace(entry, paper=by_margin.get(row.margin))
    if entry.part == "figure5":
        for bar in numbers.bars():
            here = (bar.id, bar.net, bar.metric) == (place.id, place.net, entry.metric)
            if here and row.name == (MACS if bar.bounded else ONLY_MCD).name:
                return replace(entry, paper=bar.value)
    if not entry.part.startswith("table") or not row.paper:
        return entry
    keys = {"id": place.id, "net": place.net, "method": row.paper, "metric": entry.metric}
    cell = numbers.cell(int(entry.part[-1]), ood=ood, **keys)
    return replace(entry, paper=cell.mean, paper_error=cell.error, doubt=cell.note)


def _margins(part: str, outcome: Outcome) -> Iterator[Entry]:
    """Table 5: the test-chosen margin, as in the paper, and the validation-chosen one."""
    printed = {(margin.id, margin.net): margin.margin for margin in numbers.margins()}
    for place in stand_ins(part, outcome):
        for row in outcome.rows(part):
            on: Choice = "test" if row.margin == "test" else "validation"
            entry = Entry(part, place.id, place.net, "Margins", "", place.title, f"{on}-chosen", ranked=False)
            entry = replace(entry, seeds=len(outcome.seeds))
            if place.itself and on == "test":
                entry = replace(entry, paper=printed[place.id, place.net], comparable=_comparable(outcome, row))
            try:
                yield replace(entry, ours=outcome.chosen(place.id, place.net, on))
            except Lacking as reason:
                yield replace(entry, lacking=reason.word, why=str(reason))


def _boxes(part: str, outcome: Outcome) -> Iterator[Entry]:
    """Fig. 1: the quartiles of the confidences, of the first seed."""
    printed = {(box.method, box.data): box for box in numbers.boxes()}
    isun = outcome.setup.scale.ood["isun"]
    for place in stand_ins(part, outcome):
        for row in outcome.rows(part):
            for paper, name in (("cifar100", place.id), ("isun", isun)):
                for metric, percentile in QUARTILES.items():
                    entry = Entry(part, place.id, place.net, place.title, name, row.label, metric, ranked=False)
                    if place.itself:
                        value = 100 * getattr(printed[row.paper, paper], metric)
                        entry = replace(entry, paper=value, comparable=_comparable(outcome, row))
                    try:
                        values = confidences(outcome, place, row, "id" if name == place.id else name)
                        yield replace(entry, ours=100 * float(np.percentile(values, percentile)), seeds=1)
                    except Lacking as reason:
                        yield replace(entry, lacking=reason.word, why=str(reason))


def confidences(outcome: Outcome, place: StandIn, row: TableRow, images: str) -> NDArray[np.float32]:
    """The confidences of a row's first seed on an OOD set, or on the ID test images: "id"."""
    by_set = outcome.row(row, place.id, place.net)[1][0].confidences
    if images not in by_set:
        raise Lacking("missing", f"{images} was not measured")
    return by_set[images]
