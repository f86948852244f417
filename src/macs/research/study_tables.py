"""The study's tables and figures from its cells, and the documents that hold them. Metrics are in percent."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from macs import figures, metrics
from macs.core.errors import MacsError
from macs.research.publication import Publication, ResultTable, Text, publish
from macs.research.seed_statistics import Difference, Estimate, estimate, paired_difference
from macs.research.study import GOAL, RECOMMENDED, REFERENCE, RowResult, Study, StudyResults, run, sets_from
from macs.research.study_cells import METRICS, VALIDATION
from macs.research.study_plan import (
    COSTS,
    ELSEWHERE,
    EQUAL,
    FAR,
    GROUPS,
    IMAGES,
    LONGER,
    NEAR,
    NET,
    OOD,
    PROTOCOLS,
    SCORES,
    Row,
)
from macs.research.study_rule import RankedCandidate
from macs.research.study_rule import agreement as rule_agreement
from macs.training.recipe import AUTO_RECIPE, METHOD, SETTINGS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELLS = Path(__file__).parents[3] / "study"  # in a clone of the repository
MARKERS = re.compile(r"<!-- study: (?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
BEST = "the score that validation chooses"
Claim = tuple[tuple[str, str], tuple[str, str], str]  # (row, score), (row, score), and one set or "" for the mean
CLAIMS: tuple[Claim, ...] = (
    (("macs", "msp"), ("oe", "msp"), ""),
    (("macs-energy-hinge", "energy"), ("oe", "energy"), ""),
    (("macs-energy-hinge", "energy"), ("oe", "energy"), "cifar100"),
    (("macs-energy-hinge", "energy"), ("energy", "energy"), ""),
    (("oe-averaged", "msp"), ("oe", "msp"), ""),
    (("hinge-averaged", "energy"), ("macs-energy-hinge", "energy"), ""),
    ((RECOMMENDED, BEST), ("oe", "msp"), ""),
    ((RECOMMENDED, BEST), ("oe", BEST), ""),
    ((RECOMMENDED, BEST), ("plain", BEST), ""),
    (("oe", BEST), ("oe", "msp"), ""),
    (("plain", BEST), ("oe", "msp"), ""),
    (("oe", "msp"), ("plain", "msp"), ""),
)
LONGER_CLAIMS: tuple[Claim, ...] = (
    *(((f"macs-focus-longer-{epochs}", BEST), (f"oe-longer-{epochs}", BEST), "") for epochs in (2, 4)),
    *(((f"hinge-averaged-longer-{epochs}", BEST), (f"oe-longer-{epochs}", BEST), "") for epochs in (2, 4)),
    *(((f"hinge-averaged-longer-{epochs}", BEST), (f"oe-longer-{epochs}", "msp"), "") for epochs in (2, 4)),
)
MAIN = ("plain", "oe", "energy", "macs", "macs-energy-hinge", "oe-averaged", "hinge-averaged")
SHOWN = 4  # candidates in the table of the rule
NO_CELLS = "No cell of this table is there yet."
TOO_FEW = "There are too few cells to recommend anything yet."
SETS = {"svhn": "SVHN-5k", "textures": "DTD-10", "places365": "Places-100", "cifar100": "CIFAR-100-5k"}
FPR95 = "FPR95 (%), OOD positive"

# A column is a function of a row's results and a score; a line of a table is a pair of these two.
ScoredRow = tuple[RowResult, str]
StudyColumn = Callable[[RowResult, str], str | Text]


def metric(name: str, where: str | Sequence[str] = "", by: str = "") -> StudyColumn:
    """Return the column of a metric: on one set or as the mean over OOD sets, by the line's score or by a fixed one."""
    return lambda found, score: shown(found.estimate(name, by or score, where))


TRAINING: dict[str, StudyColumn] = {"training": lambda found, _: found.row.title}
SEEDS: dict[str, StudyColumn] = {"seeds": lambda found, _: str(len(found.records))}
SCORE: dict[str, StudyColumn] = {"score": lambda _, score: score}
AUROC: dict[str, StudyColumn] = {"AUROC ↑": metric("auroc")}
LOSSES: dict[str, StudyColumn] = {"FPR95 ↓": metric("fpr95")}
APART: dict[str, StudyColumn] = {"FPR95, far ↓": metric("fpr95", FAR), "FPR95, near ↓": metric("fpr95", NEAR)}
ACCURACY: dict[str, StudyColumn] = {"ID accuracy": lambda found, _: shown(found.accuracy)}


def tabulated(lines: Iterable[ScoredRow], columns: Mapping[str, StudyColumn], text: str = "") -> ResultTable:
    """Return the table that has these lines and columns, or a sentence if there are no lines."""
    cells = [[column(found, score) for column in columns.values()] for found, score in lines]
    rows: list[list[Text]] = [[(cell, "") if isinstance(cell, str) else cell for cell in line] for line in cells]
    return ResultTable("", tuple(columns), {"": rows}, text) if rows else ResultTable(text=NO_CELLS)


def tables_of(results: StudyResults) -> dict[str, ResultTable]:
    """Return every table by its name."""
    status_table = ResultTable(text=status(results))
    if not results.rows:
        return {"status": status_table}
    return {
        "status": status_table,
        "summary": summary(results),
        "main": main(results),
        "core": core(results),
        "sets": per_set(results),
        "scores": by_score(results),
        "chosen": choices(results),
        "agreement": ResultTable(text=agreement(results)),
        "goal": goal(results),
        "rule": rule(results),
        "screening": screening(results),
        "auto": ResultTable(text=auto(results)),
        "claims": ResultTable(text=claims(results, CLAIMS)),
        "equal": equal(results),
        "costs": single(results, "OE with", COSTS),
        "protocols": single(results, "margins, one after another", PROTOCOLS),
        "longer": two_scores(results, LONGER, APART),
        "longer-claims": ResultTable(text=claims(results, LONGER_CLAIMS) or NO_CELLS),
        "elsewhere": two_scores(results, ELSEWHERE, {f"FPR95, {SETS[name]}": metric("fpr95", name) for name in OOD}),
        "cells": cells(results),
    }


def blocks(results: StudyResults) -> dict[str, str]:
    """Return the text of every table by its name, as it stands between the markers of a document."""
    return {name: table.markdown for name, table in tables_of(results).items()}


def refreshed(document: str, texts: Mapping[str, str]) -> str:
    """Return a document with these texts between its markers, `<!-- study: NAME -->` and `<!-- end -->`."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in texts:
            raise MacsError(f"The document asks for the table {name!r}; there are {', '.join(texts)}.")
        return f"<!-- study: {name} -->\n\n{texts[name]}\n\n<!-- end -->"

    return MARKERS.sub(block, document)


def publish_study(
    folder: Path, cells: Path | None = None, data: Path | None = None, checkpoint: Path | None = None
) -> Publication:
    """Write tables and figures from the cells; with a checkpoint, compute the missing cells first.

    Without `cells`, those of the repository are read; an installed package has none, and keeps its own below `folder`.
    """
    cells = cells or (CELLS if CELLS.is_dir() else folder / "cells")
    if checkpoint is not None:
        run(Study.read(cells), sets_from(data, checkpoint, cells / GROUPS), cells, folder / "runs")
    elif not any(cells.glob("*.json")):
        raise MacsError(
            f"There are no cells of the study in {cells}: the package does not contain them, so run this in a clone of "
            "the repository, name a folder with --cells, or compute them with --data and --checkpoint."
        )
    results = StudyResults.of(Study.read(cells))
    named = {name: ResultTable(name, t.header, t.sections, t.text) for name, t in tables_of(results).items()}
    shown_first = [named[name] for name in ("core", "goal", "status") if name in named]
    values, title = as_dict(results), "The study: methods and scores compared on real images"
    notes = [metrics.get(name).sentence for name in ("fpr95", "fpr95_id")]
    publication = Publication("study", title, [*named.values()], list(records(values)), values, notes, shown_first)
    return publish(publication, folder, draw(results))


def status(results: StudyResults) -> str:
    seeds = [len(found.records) for found in results.rows.values()]
    if not seeds:
        return f"There are no cells; {results.missing} are planned."
    counts = f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    missing = f"{results.missing} planned cells are missing" if results.missing else "no planned cell is missing"
    return f"Rows with cells: {len(seeds)}; seeds per row: {counts}; {missing}."


def own_lines(results: StudyResults) -> list[ScoredRow]:
    """Return every row with the score of its method."""
    return [(found, found.own) for found in results.rows.values()]


def others(results: StudyResults, rows: Sequence[Row]) -> list[RowResult]:
    """Return the rows of a table apart, as far as they have cells."""
    return [found for row in rows if (found := results.others.get(row.name)) is not None]


def costs_of(results: StudyResults) -> dict[str, StudyColumn]:
    def relative(found: RowResult, _: str) -> str:
        cost = found.relative_cost(results.oe_seconds)
        return "–" if cost is None else f"{cost:.2f}"

    def passed(found: RowResult, _: str) -> str:
        return f"{found.cost('images'):,.0f}" if found.row.method else "0"

    return {"images passed": passed, "CPU time, OE = 1": relative}


def rate(found: RowResult, _: str) -> str:
    return f"{found.trial.recipe.lr:g}" if found.row.method else "–"


def summary(results: StudyResults) -> ResultTable:
    """Return the few rows that answer the question: the plain classifier, and each training with its chosen score."""
    asked = [("plain", "msp"), ("plain", BEST), ("oe", BEST), ("macs", BEST), (RECOMMENDED, BEST)]
    lines = {(line[0].row.name, line[1]): line for name, score in asked if (line := resolved(results, name, score))}

    def training(found: RowResult, _: str) -> str:
        return "`--method auto` (ours)" if found.row.name == RECOMMENDED and is_auto(found) else found.row.title

    return tabulated(lines.values(), {"training": training, **SCORE, **APART, **ACCURACY})


def main(results: StudyResults) -> ResultTable:
    """Return the rows of the page, each with its own score and with the one that validation chooses."""
    rows = [name for name in (*MAIN, results.best) if name in results.rows]
    lines = [resolved(results, RECOMMENDED if name == results.best else name, BEST) for name in dict.fromkeys(rows)]
    pairs = [(line[0], score) for line in lines if line for score in dict.fromkeys((line[0].own, line[1]))]
    marked, _ = _against(lambda found, score: results.difference(found.row.name, "fpr95", score, "msp"))
    mean = {"FPR95, mean ↓": marked["FPR95 ↓"]}
    return tabulated(pairs, {**TRAINING, "learning rate": rate, **SCORE, **SEEDS, **APART, **mean, **AUROC, **ACCURACY})


def rule(results: StudyResults) -> ResultTable:
    """Return the best of the allowed candidates by the rule, and how well its order agrees with the test sets."""
    allowed = [each for each in results.ranked if each.allowed]
    best = {(each.row.name, each.trial.recipe.lr): each for each in reversed(allowed)}  # a training's best score
    return _by_rule(sorted(best.values(), key=lambda each: each.rank)[:SHOWN], _agreement(results.ranked))


def screening(results: StudyResults) -> ResultTable:
    """Return the best candidate of every row of the larger study by the rule, one seed each."""
    best = {each.row.name: each for each in reversed(results.screened)}
    best |= {each.row.name: each for each in reversed(results.screened) if each.allowed}
    return _by_rule(sorted(best.values(), key=lambda each: each.rank), _agreement(results.screened))


def _by_rule(candidates: Sequence[RankedCandidate], text: str) -> ResultTable:
    by_trial = {id(each): RowResult(each.row, each.trial, {0: each.record}, each.score) for each in candidates}
    ranks = {id(by_trial[id(each)]): each for each in candidates}

    def known(what: Callable[[RankedCandidate], str]) -> StudyColumn:
        return lambda found, _: what(ranks[id(found)])

    columns: dict[str, StudyColumn] = {
        **TRAINING,
        "learning rate": rate,
        **SCORE,
        "mean rank": known(lambda each: f"{each.rank:.1f}"),
        "validation accuracy": known(
            lambda each: _percent(each.record.validation_accuracy) + ("" if each.allowed else " (too low)")
        ),
        **APART,
        **ACCURACY,
    }
    return tabulated([(by_trial[id(each)], each.score) for each in candidates], columns, text)


def _agreement(candidates: Sequence[RankedCandidate]) -> str:
    if len(candidates) < 2 * SHOWN:
        return "There are too few candidates to judge the rule by."
    by_rule, by_outliers = rule_agreement(candidates)
    return (
        f"Over the {len(candidates):,} pairs of a training and a score that have what the rule asks for, Kendall's tau "
        f"between their order by the rule and their order by mean FPR95 on the test sets is {by_rule:.2f}; by FPR95 on "
        f"validation outliers alone, it is {by_outliers:.2f}."
    )


def core(results: StudyResults) -> ResultTable:
    """Return every row with its own score, against OE."""
    reference = results.rows.get(REFERENCE)

    def gap(found: RowResult, score: str) -> Difference | None:
        return results.difference(found.row.name, "fpr95", score, reference.own) if reference else None

    marked, gaps = _against(gap)
    columns = {**TRAINING, **SEEDS, **SCORE, **AUROC, **marked, "FPR95, ID positive ↓": metric("fpr95_id"), **gaps}
    return tabulated(own_lines(results), {**columns, **ACCURACY, **costs_of(results)})


def per_set(results: StudyResults) -> ResultTable:
    """FPR95 on each OOD set, with the row's own score."""
    on_sets = {SETS[name]: metric("fpr95", name) for name in OOD}
    columns = {
        **TRAINING,
        **SCORE,
        **on_sets,
        "mean": metric("fpr95"),
        "validation outliers": metric("fpr95", VALIDATION),
    }
    return tabulated(own_lines(results), columns)


def by_score(results: StudyResults) -> ResultTable:
    """Mean FPR95 of every row with every score; marked are the score that is best on validation outliers, and the one
    that `--score auto` chooses."""

    def column(score: str) -> StudyColumn:
        return lambda found, _: (
            _percent(found.estimate("fpr95", score).mean)
            + " ←" * (score == found.best_score)
            + " ⇐" * (score == found.auto_score)
        )

    return tabulated(own_lines(results), {**TRAINING, **{score: column(score) for score in SCORES}})


def equal(results: StudyResults) -> ResultTable:
    """Return the main rows at one learning rate, and how far they are from the first."""
    rows = others(results, EQUAL)

    def gap(found: RowResult, score: str) -> Difference | None:
        if found is rows[0]:
            return None
        return paired_difference(found.over_seeds("fpr95", score), rows[0].over_seeds("fpr95", rows[0].own))

    marked, gaps = _against(gap)
    lines = [(found, found.own) for found in rows]
    return tabulated(lines, {**TRAINING, **SEEDS, **SCORE, **AUROC, **marked, **gaps, **ACCURACY})


def single(results: StudyResults, head: str, rows: Sequence[Row]) -> ResultTable:
    """Trainings at one learning rate and with one seed: other budgets, or other protocols."""
    columns = {
        head: TRAINING["training"],
        **{f"FPR95, {score}": metric("fpr95", by=score) for score in ("msp", "energy", "knn")},
        "validation FPR95, msp": metric("fpr95", VALIDATION, "msp"),
        **ACCURACY,
        **costs_of(results),
    }
    return tabulated([(found, "msp") for found in others(results, rows)], columns)


def two_scores(results: StudyResults, rows: Sequence[Row], on_sets: Mapping[str, StudyColumn]) -> ResultTable:
    """The rows of a table apart, such as another network's, each with its own score and with the one that validation
    chooses."""
    found_rows = others(results, rows)
    lines = [(found, score) for found in found_rows for score in dict.fromkeys((found.own, found.chosen_score))]
    means = {"mean FPR95 ↓": metric("fpr95"), "mean AUROC ↑": metric("auroc")}
    return tabulated(lines, {**TRAINING, **SCORE, **on_sets, **means, **ACCURACY})


def choices(results: StudyResults) -> ResultTable:
    """Return the settings that validation chose for each row."""
    columns: dict[str, StudyColumn] = {
        **TRAINING,
        "candidates computed": lambda found, _: f"{found.tried} of {found.worth_trying}",
        "learning rate": lambda found, _: f"{found.trial.recipe.lr:g}",
        "settings": lambda found, _: _listed(found.trial.recipe.options),
        "validation FPR95, own score": metric("fpr95", VALIDATION),
        "best score there": lambda found, _: (
            f"{found.best_score}: {shown(found.estimate('fpr95', found.best_score, VALIDATION))}"
        ),
    }
    return tabulated([line for line in own_lines(results) if line[0].row.method], columns)


def agreement(results: StudyResults) -> str:
    """Return how far the OOD sets agree on the order of the rows."""
    taus = results.agreement() if len(results.rows) > 2 else {}
    pairs = ", ".join(f"{SETS[a]} and {SETS[b]} {tau:.2f}" for (a, b), tau in taus.items())
    return f"Kendall's tau between the orders of the rows by FPR95: {pairs}." if taus else "There are too few rows yet."


def goal(results: StudyResults) -> ResultTable:
    """Compare the recommended row with OE by MSP, OE by its best score, MaCS, and the best of papers' methods."""
    choice, reference = results.recommended(), results.rows.get(REFERENCE)
    if choice is None or reference is None:
        return ResultTable(text=TOO_FEW)
    recommended, score = choice
    papers = [found for found in results.rows.values() if found.row.method and not found.row.ours]
    best = min(papers, key=lambda found: found.estimate("fpr95", found.chosen_score).mean)
    asked = {
        "recommended": choice,
        "OE with MSP": (reference, "msp"),
        "OE, score chosen on validation": (reference, reference.chosen_score),
        "MaCS with MSP": resolved(results, "macs", "msp"),
        "MaCS, score chosen on validation": resolved(results, "macs", BEST),
        "best of the papers' methods on the test sets": (best, best.chosen_score),
        "no training, score chosen on validation": resolved(results, "plain", BEST),
    }
    labels = iter([label for label, line in asked.items() if line is not None])
    columns: dict[str, StudyColumn] = {
        "": lambda *_: next(labels),
        **TRAINING,
        **SCORE,
        **AUROC,
        **LOSSES,
        "FPR95 − that of OE with MSP": lambda found, how: gap_shown(
            results.difference(found.row.name, "fpr95", how, "msp")
        ),
        **ACCURACY,
    }
    lines = [line for line in asked.values() if line is not None]
    return tabulated(lines, columns, _verdict(recommended, score, reference, best))


def _verdict(recommended: RowResult, score: str, reference: RowResult, best: RowResult) -> str:
    ours, oe = recommended.estimate("fpr95", score).mean, reference.estimate("fpr95", "msp").mean
    theirs = best.estimate("fpr95", best.chosen_score).mean
    met = "met" if ours <= GOAL * oe else "missed"
    first = f"The goal, at most {GOAL} times the mean FPR95 of OE with MSP, is {met}: the ratio is {ours / oe:.2f}."
    if best.row.name == recommended.row.name:
        second = "The recommended row is itself a paper's method."
    else:
        side = "below" if ours < theirs else "above"
        paired = paired_difference(recommended.over_seeds("fpr95", score), best.over_seeds("fpr95", best.chosen_score))
        points = f"{abs(100 * (ours - theirs)):.2f} points {side}"
        second = f"It is {points} the best of the papers' methods ({_sure(paired)})."
    gap = 100 * (recommended.accuracy.mean - reference.accuracy.mean)
    return f"{first} {second} Its ID accuracy is {abs(gap):.2f} points {'below' if gap < 0 else 'above'} OE's."


def resolved(results: StudyResults, name: str, score: str) -> ScoredRow | None:
    """Return the row of this name, if it has cells, with the score, which may be the one that validation chooses."""
    if name == RECOMMENDED:
        found = results.recommended()
        return found and (found[0], found[1] if score == BEST else score)
    row = {**results.others, **results.rows}.get(name)
    return None if row is None else (row, row.chosen_score if score == BEST else score)


def claims(results: StudyResults, wanted: Sequence[Claim]) -> str:
    """Comparisons of two rows or scores, each with its cells."""
    pairs = [(resolved(results, *ours), resolved(results, *theirs), where) for ours, theirs, where in wanted]
    lines = [
        f"- {_compared(ours, theirs, where)}"
        for ours, theirs, where in pairs
        if ours is not None and theirs is not None and ours != theirs
    ]
    return "\n".join(dict.fromkeys(lines))  # the recommended method may have a claim of its own already


def _compared(ours: ScoredRow, theirs: ScoredRow, where: str) -> str:
    pair, scores = [ours[0], theirs[0]], [ours[1], theirs[1]]
    by_seed = [found.over_seeds("fpr95", score, where) for found, score in zip(pair, scores, strict=True)]
    for number, found in enumerate(pair):  # a classifier that is not trained is the same beside every seed
        if not found.row.method:
            by_seed[number] = dict.fromkeys(by_seed[1 - number], *by_seed[number].values())
    means = [estimate(list(values.values())).mean for values in by_seed]
    gap, paired = 100 * (means[0] - means[1]), paired_difference(by_seed[0], by_seed[1])
    cells = ", ".join(dict.fromkeys(record.key for found in pair for record in found.records.values()))
    first, second = (f"{found.row.title} with {score}" for found, score in zip(pair, scores, strict=True))
    on, side = f"on {SETS[where]}" if where else "over the four sets", "below" if gap < 0 else "above"
    return (
        f"{first} has the FPR95 {_percent(means[0])} {on}, {abs(gap):.2f} points {side} {second}, "
        f"{_percent(means[1])} ({_sure(paired)}; cells {cells})."
    )


def _sure(paired: Difference | None) -> str:
    """Return how far a difference is to be trusted."""
    if paired is None or paired.pairs < 2:
        return "one seed"
    return f"{'' if paired.significant else 'not '}significant over {paired.pairs} seeds"


def auto(results: StudyResults) -> str:
    """Return what the cells recommend, and what `--method auto` does."""
    choice = results.recommended()
    if choice is None:
        return TOO_FEW
    found, score = choice
    recipe, options = found.trial.recipe, found.trial.recipe.options
    how = _listed({"learning rate": f"{recipe.lr:g}", **found.row.recipe})
    ours = f"{found.row.method} with {_listed(options)} ({how}), scored by {score}"
    differs = f"whereas `--method auto` is {METHOD} with {_listed(SETTINGS)}"
    now = "which is `--method auto`" if is_auto(found) else differs
    return f"The rule chooses {ours}; {now}."


def is_auto(found: RowResult) -> bool:
    """Return whether `--method auto` trains as this row does."""
    recipe = found.trial.recipe
    same = (found.row.method, dict(recipe.options)) == (METHOD, SETTINGS)
    return same and all(getattr(recipe, name) == value for name, value in AUTO_RECIPE.items())


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items()) or "its defaults"


def cells(results: StudyResults) -> ResultTable:
    """Return which cells the numbers of each row come from."""
    columns: dict[str, StudyColumn] = {
        "training": lambda found, _: found.row.title + ("" if found.row.net == NET else f", {found.row.net}"),
        "cells by seed": lambda found, _: " ".join(f"{seed}: {record.key}" for seed, record in found.records.items()),
    }
    return tabulated([(found, "") for found in (*results.rows.values(), *results.others.values())], columns)


def as_dict(results: StudyResults) -> dict[str, Any]:
    """Return all numbers of the tables, as shares."""
    rows = {}
    for name, found in {**results.rows, **results.others}.items():
        rows[name] = {
            "title": found.row.title,
            "net": found.row.net,
            "method": found.row.method,
            "settings": dict(found.trial.recipe.options),
            "lr": found.trial.recipe.lr,
            "seeds": list(found.records),
            "cells": [record.key for record in found.records.values()],
            "own_score": found.own,
            "best_score_on_validation": found.best_score,
            "score_of_auto": found.auto_score,
            "accuracy": [record.accuracy for record in found.records.values()],
            "cost": {what: found.cost(what) for what in ("seconds", "cpu_seconds", "images")},
            "relative_cost": found.relative_cost(results.oe_seconds),
            "scores": {
                score: {
                    where: {metric: list(found.over_seeds(metric, score, where).values()) for metric in METRICS}
                    for where in (VALIDATION, *OOD)
                }
                for score in SCORES
            },
        }
    return {"images_per_training": IMAGES, "missing_cells": results.missing, "rows": rows}


def records(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one record per row, seed, score and set, for CSV."""
    for name, row in values["rows"].items():
        for index, (seed, cell) in enumerate(zip(row["seeds"], row["cells"], strict=True)):
            for score, sets in row["scores"].items():
                for where, found in sets.items():
                    place = {"row": name, "net": row["net"], "seed": seed, "cell": cell, "score": score, "set": where}
                    yield {**place, **{metric: over_seeds[index] for metric, over_seeds in found.items()}}


def draw(results: StudyResults) -> "dict[str, Figure]":
    """Draw every figure that the cells allow."""
    drawn = {}
    if gaps := differences(results):
        drawn["differences"] = figures.gaps(gaps, "OE", "FPR95")
    if rows := [*results.rows.values()]:
        values = [[100 * found.estimate("fpr95", score).mean for score in SCORES] for found in rows]
        drawn["scores"] = figures.heat_map([found.row.title for found in rows], SCORES, values, f"mean {FPR95}")
    if points := near_and_far(results):
        axes = ("mean FPR95 (%) far from the classes", "FPR95 (%) near them")
        drawn["near-and-far"] = figures.quality_against_cost(points, *axes)
    if points := costs(results):
        axes = ("CPU time of training, OE with 2,000 images = 1", f"mean {FPR95}, msp")
        drawn["cost"] = figures.quality_against_cost(points, *axes)
    return drawn


def differences(results: StudyResults) -> list[figures.Gap]:
    """FPR95 of each row with its own score minus that of OE with MSP: the mean over sets, then set by set."""
    reference = results.rows.get(REFERENCE)
    if reference is None:
        return []
    items = []
    for where, panel in {"": "mean of four", **{name: SETS[name] for name in OOD}}.items():
        for name, found in results.rows.items():
            gap = results.difference(name, "fpr95", found.own, reference.own, where)
            if gap is not None:
                half_width = None if math.isnan(gap.half_width) else 100 * gap.half_width
                items.append(figures.Gap(panel, found.row.title, 100 * gap.mean, half_width))
    return items


def near_and_far(results: StudyResults) -> list[figures.CostPoint]:
    """Return the rows of the page, each with the score that validation chooses, and OE and the classifier with MSP."""
    named = {RECOMMENDED if name == results.best else name: BEST for name in (*MAIN, results.best)}
    lines = [resolved(results, *each) for each in (*named.items(), ("plain", "msp"), ("oe", "msp"))]
    points = {}
    for found, score in filter(None, lines):
        far, near = (100 * found.estimate("fpr95", score, sets).mean for sets in (FAR, NEAR))
        title = f"{found.row.title}, {score}"
        points[title] = figures.CostPoint(title, far, near)
    return list(points.values())


def costs(results: StudyResults) -> list[figures.CostPoint]:
    """OE with each budget, and the classifier that it starts from, as far as their costs can be compared."""
    plain = results.rows.get("plain")
    return [
        figures.CostPoint(found.row.title, cost, 100 * found.estimate("fpr95", found.own).mean)
        for found in (*([plain] if plain else []), *others(results, COSTS))
        if (cost := found.relative_cost(results.oe_seconds)) is not None
    ]


def shown(value: Estimate) -> str:
    """Return a share in percent, with its standard error where there are several seeds."""
    return _percent(value.mean) if math.isnan(value.error) else f"{_percent(value.mean)} ± {_percent(value.error)}"


def gap_shown(gap: Difference | None) -> str:
    """Return a difference in points, with its interval where there are several pairs."""
    if gap is None:
        return "–"
    mean = f"{100 * gap.mean:+.2f}"
    if math.isnan(gap.half_width):
        return f"{mean} (one seed)"
    return f"{mean} [{100 * (gap.mean - gap.half_width):+.2f}, {100 * (gap.mean + gap.half_width):+.2f}]"


def _against(
    gap: Callable[[RowResult, str], Difference | None],
) -> tuple[dict[str, StudyColumn], dict[str, StudyColumn]]:
    """Return the columns FPR95 and its difference from OE's; bold is below OE's with an interval that excludes 0."""

    def fpr95(found: RowResult, score: str) -> Text:
        paired = gap(found, score)
        better = paired is not None and paired.significant and paired.mean < 0
        return shown(found.estimate("fpr95", score)), "best" if better else ""

    return {"FPR95 ↓": fpr95}, {"FPR95 − OE's": lambda found, score: gap_shown(gap(found, score))}


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"
