"""The paper's tables from our results: the paper's number, ours, and the difference.

A table or figure is a list of `ComparedNumber`, which `tables_of` turns into rows of text. All numbers are in percent,
as in the paper. Ours follow the paper's protocol: the mean of ten draws of a fifth of the test images. The standard
error over the draws and the standard deviation over training seeds are different things and are kept apart.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from macs.evaluation import Evaluation
from macs.experiments.cells import Result
from macs.experiments.margins import ChosenOn
from macs.metrics import available, deviation, mean_and_error
from macs.research import paper_numbers as numbers
from macs.research.paper_grid import MACS, ONLY_MCD, PARTS, TableRow, places
from macs.research.paper_runs import Lacking, Reproduction
from macs.research.publication import Mark, ResultTable, Text

RANKED = ("auroc", "aupr", "fpr95", "accuracy")
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
class ComparedNumber:
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


ComparisonColumn = tuple[str, Callable[[list[ComparedNumber]], list[Text]]]  # its name, and its texts from its numbers


def entries(part: str, done: Reproduction) -> list[ComparedNumber]:
    """Return all numbers of a table or figure; Fig. 3 has none."""
    makers = {"table3": _by_ood_set, "table4": _by_ood_set, "table5": _margins, "figure1": _boxes}
    if part == "figure3":
        return []
    return list(makers.get(part, _averages)(part, done))


def stand_ins(part: str, done: Reproduction) -> list[StandIn]:
    """Return the ID sets and networks of a table or figure, in its order."""
    run = places(PARTS[part], done.setup.scale, done.only)
    return [StandIn(id, net, tuple(papers)) for (id, net), papers in run.items()]


def _averages(part: str, done: Reproduction) -> Iterator[ComparedNumber]:
    """Means over the OOD sets: Tables 1, 2, 6 and 7, Figs. 4 and 5."""
    scale, rows = done.setup.scale, done.rows(part)
    if part == "figure4":
        macs = replace(MACS, as_printed=scale.released)
        rows = tuple(replace(macs, label=f"m = {margin:g}", margin=margin) for margin in scale.margins)
    for place in stand_ins(part, done):
        near = scale.near.get(place.id, "") if part in WITH_NEAR else ""
        for on in ("", near) if near else ("",):
            for row in rows:
                for metric in PARTS[part].metrics:
                    yield _entry(part, done, place, row, metric, None, on)


def _by_ood_set(part: str, done: Reproduction) -> Iterator[ComparedNumber]:
    """Yield each OOD set on its own: Tables 3 and 4."""
    printed = {cell.ood for cell in numbers.table(int(part[-1]))}
    for place in stand_ins(part, done):
        for name in (name for name in done.setup.scale.ood_sets(place.id) if name in printed):
            for row in done.rows(part):
                for metric in PARTS[part].metrics:
                    yield _entry(part, done, place, row, metric, name)


def _entry(
    part: str, done: Reproduction, place: StandIn, row: TableRow, metric: str, ood: str | None, near: str = ""
) -> ComparedNumber:
    """Return a row's metric over the OOD sets, on the set that stands for the paper's `ood`, or on a near set."""
    scale = done.setup.scale
    ours = near or (scale.ood[ood] if ood else "")
    section = f"{near} (near)" if near else ours
    entry = ComparedNumber(
        part, place.id, place.net, place.title, section, row.label, metric, ranked=row.margin != "test"
    )
    if near and metric == "accuracy":
        return entry  # it stands among the averages
    if place.itself and not near:
        entry = _with_paper(entry, place, row, ood)
    try:
        margin, results = done.row(row, place.id, place.net)
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
        comparable=complete and _comparable(done, row, place.id),
    )


def _near(result: Result, name: str) -> Evaluation:
    if result.near is None:
        raise Lacking("missing", f"{name} was not measured")
    return result.near


def _comparable(done: Reproduction, row: TableRow, id: str) -> bool:
    """Return whether a row has the budget and the settings of the paper's."""
    return done.setup.as_printed(id) and row.as_printed


def _values(evaluation: Evaluation, metric: str, ood: str) -> tuple[list[float], float]:
    """Return the metric in each draw and on all test images."""
    if metric == "accuracy":
        return evaluation.draw_accuracies, evaluation.accuracy
    if not ood:
        return evaluation.draw_means(metric), evaluation.mean(metric)
    for result in evaluation.sets:
        if result.name == ood:
            return [getattr(draw, metric) for draw in result.draws], getattr(result.full, metric)
    raise Lacking("missing", f"{ood} was not measured")


def _with_paper(entry: ComparedNumber, place: StandIn, row: TableRow, ood: str | None) -> ComparedNumber:
    """Return the entry with the number that the paper prints for it, if any."""
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


def _margins(part: str, done: Reproduction) -> Iterator[ComparedNumber]:
    """Table 5: the test-chosen margin, as in the paper, and the validation-chosen one."""
    printed = {(margin.id, margin.net): margin.margin for margin in numbers.margins()}
    for place in stand_ins(part, done):
        for row in done.rows(part):
            on: ChosenOn = "test" if row.margin == "test" else "validation"
            entry = ComparedNumber(part, place.id, place.net, "Margins", "", place.title, f"{on}-chosen", ranked=False)
            entry = replace(entry, seeds=len(done.seeds))
            if place.itself and on == "test":
                entry = replace(entry, paper=printed[place.id, place.net], comparable=_comparable(done, row, place.id))
            try:
                yield replace(entry, ours=done.chosen(place.id, place.net, on))
            except Lacking as reason:
                yield replace(entry, lacking=reason.word, why=str(reason))


def _boxes(part: str, done: Reproduction) -> Iterator[ComparedNumber]:
    """Fig. 1: the quartiles of the confidences, of the first seed."""
    printed = {(box.method, box.data): box for box in numbers.boxes()}
    isun = done.setup.scale.ood["isun"]
    for place in stand_ins(part, done):
        base = ComparedNumber(part, place.id, place.net, place.title, "", "", "", ranked=False)
        for row in done.rows(part):
            for paper, name in (("cifar100", place.id), ("isun", isun)):
                for metric, percentile in QUARTILES.items():
                    entry = replace(base, row=row.label, section=name, metric=metric)
                    if place.itself:
                        value = 100 * getattr(printed[row.paper, paper], metric)
                        entry = replace(entry, paper=value, comparable=_comparable(done, row, place.id))
                    try:
                        values = confidences(done, place, row, "id" if name == place.id else name)
                        yield replace(entry, ours=100 * float(np.percentile(values, percentile)), seeds=1)
                    except Lacking as reason:
                        yield replace(entry, lacking=reason.word, why=str(reason))


def confidences(done: Reproduction, place: StandIn, row: TableRow, images: str) -> NDArray[np.float32]:
    """Return the confidences of a row's first seed on an OOD set, or on the ID test images: "id"."""
    by_set = done.row(row, place.id, place.net)[1][0].confidences
    if images not in by_set:
        raise Lacking("missing", f"{images} was not measured")
    return by_set[images]


def tables_of(entries: Sequence[ComparedNumber], metrics_at_once: int = 9) -> list[ResultTable]:
    """Return entries as rows: one line per method, for each metric the paper's number, ours, and the difference.

    A table without any number of ours is left out; the notes say why.
    """
    tables = []
    for title in dict.fromkeys(entry.block for entry in entries if not entry.lacking):
        members = [entry for entry in entries if entry.block == title]
        metrics = list(dict.fromkeys(entry.metric for entry in members))
        for start in range(0, len(metrics), metrics_at_once):
            tables.append(_table(title, members, metrics[start : start + metrics_at_once]))
    return tables


def _table(title: str, entries: list[ComparedNumber], metrics: list[str]) -> ResultTable:
    columns = [
        (metric, *column) for metric in metrics for column in _columns([e for e in entries if e.metric == metric])
    ]
    sections: dict[str, list[list[Text]]] = {}
    for section in dict.fromkeys(entry.section for entry in entries):
        members = [entry for entry in entries if entry.section == section]
        rows = dict.fromkeys(entry.row for entry in members)
        texts = [make([entry for entry in members if entry.metric == metric]) for metric, _, make in columns]
        sections[section] = [[(row, ""), *cells] for row, *cells in zip(rows, *texts, strict=True)]
    header = ("", *(f"{heading(metric)} {name}" for metric, name, _ in columns))
    return ResultTable(title, header, sections, align="r")


def heading(metric: str) -> str:
    """Return the heading of a column; a name that is not a metric, such as a quartile, is left as it is."""
    headings = {known.name: known.heading for known in available()}
    return {**headings, "accuracy": "ID-ACC ↑"}.get(metric, metric)


def _columns(entries: list[ComparedNumber]) -> list[ComparisonColumn]:
    """Return the columns of one metric: only those in which some number stands."""
    columns: list[ComparisonColumn] = [("ours", _ours)]
    if any(entry.seeds_deviation is not None for entry in entries):
        columns.append(("seeds ±", lambda entries: [(_number(e.seeds_deviation), "") for e in entries]))
    if any(entry.paper is not None for entry in entries):
        columns = [("paper", _paper), *columns]
    if any(entry.difference is not None for entry in entries):
        columns.append(("diff.", lambda entries: [(_number(e.difference, "+"), "") for e in entries]))
    return columns


def _ours(entries: list[ComparedNumber]) -> list[Text]:
    marks = ranks([e.ours if e.ranked else None for e in entries], entries[0].metric)
    texts = [e.lacking or _with_error(e.ours, e.draws_error) for e in entries]
    return list(zip(texts, marks, strict=True))


def _paper(entries: list[ComparedNumber]) -> list[Text]:
    marks = ranks([e.paper for e in entries], entries[0].metric)
    texts = [_with_error(e.paper, e.paper_error) + ("?" if e.doubt else "") for e in entries]
    return list(zip(texts, marks, strict=True))


def ranks(values: Sequence[float | None], metric: str) -> list[Mark]:
    """Mark the best and the second best of a column, by the two decimals that are printed; ties share a mark."""
    if metric not in RANKED:
        return [""] * len(values)
    rounded = [None if value is None else round(value, 2) for value in values]
    order = sorted({value for value in rounded if value is not None}, reverse="↑" in heading(metric))
    places: dict[float | None, Mark] = dict(zip(order, ("best", "second"), strict=False))
    return [places.get(value, "") for value in rounded]


def _with_error(value: float | None, error: float | None) -> str:
    return _number(value) if error is None or math.isnan(error) else f"{_number(value)} ± {_number(error)}"


def _number(value: float | None, sign: str = "") -> str:
    return "–" if value is None else f"{value:{sign}.2f}"
