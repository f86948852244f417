"""The study's tables, as markdown and as plain values for JSON. Metrics are in percent."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from macs.experiments.statistics import Difference, Estimate, estimate, paired_difference
from macs.study.cells import METRICS, VALIDATION
from macs.study.findings import GOAL, RECOMMENDED, Findings, RowResult
from macs.study.plan import COSTS, ELSEWHERE, EQUAL, IMAGES, LONGER, NET, OOD, PROTOCOLS, SCORES, Row
from macs.study.running import REFERENCE
from macs.training.recommended import METHOD, SETTINGS

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
COST = "CPU time, OE = 1"
NO_CELLS = "No cell of this table is there yet."
SETS = {"svhn": "SVHN-5k", "textures": "DTD-10", "places365": "Places-100", "cifar100": "CIFAR-100-5k"}


def blocks(findings: Findings) -> dict[str, str]:
    """The text of every table by its name, as it stands between the markers of a document."""
    if not findings.rows:
        return {"status": status(findings)}
    return {
        "status": status(findings),
        "summary": summary(findings),
        "core": core(findings),
        "sets": per_set(findings),
        "scores": by_score(findings),
        "chosen": choices(findings),
        "agreement": agreement(findings),
        "goal": goal(findings),
        "auto": auto(findings),
        "claims": claims(findings, CLAIMS),
        "equal": equal(findings),
        "costs": single(findings, "OE with", COSTS),
        "protocols": single(findings, "margins, one after another", PROTOCOLS),
        "longer": two_scores(findings, LONGER),
        "longer-claims": claims(findings, LONGER_CLAIMS) or NO_CELLS,
        "elsewhere": two_scores(findings, ELSEWHERE),
        "cells": cells(findings),
    }


def status(findings: Findings) -> str:
    seeds = [len(found.records) for found in findings.rows.values()]
    if not seeds:
        return f"There are no cells; {findings.missing} are planned."
    counts = f"{min(seeds)}" if min(seeds) == max(seeds) else f"{min(seeds)} to {max(seeds)}"
    missing = f"{findings.missing} planned cells are missing" if findings.missing else "no planned cell is missing"
    return f"Rows with cells: {len(seeds)}; seeds per row: {counts}; {missing}."


def summary(findings: Findings) -> str:
    """The few rows that answer the question, for a reader who wants no more than that."""
    asked = [("plain", "msp"), ("plain", BEST), ("oe", "msp"), ("oe", BEST), ("oe-equal", "msp"), ("macs", "msp"),
             ("hinge-averaged", BEST)]  # fmt: skip
    known = {**findings.rows, **findings.others}
    pairs = [(known[name], score) for name, score in asked if name in known]
    chosen = [(found, found.chosen_score if score == BEST else score) for found, score in pairs]
    recommended = findings.recommended()
    if recommended is not None:
        chosen.append(recommended)
    distinct = {(found.row.name, score): (found, score) for found, score in chosen}
    lines = [
        [
            found.row.title,
            f"{found.trial.recipe.lr:g}" if found.row.method else "–",
            score,
            str(len(found.records)),
            shown(found.estimate("auroc", score)),
            shown(found.estimate("fpr95", score)),
            shown(found.accuracy),
        ]
        for found, score in distinct.values()
    ]
    return markdown(["training", "learning rate", "score", "seeds", "AUROC ↑", "FPR95 ↓", "ID accuracy"], lines)


def core(findings: Findings) -> str:
    """Every row with its own score, against OE."""
    heads = ["training", "seeds", "score", "AUROC ↑", "FPR95 ↓", "FPR95, ID positive ↓", "FPR95 − OE's", "ID accuracy",
             "images passed", COST]  # fmt: skip
    reference, lines = findings.rows.get(REFERENCE), []
    for name, found in findings.rows.items():
        gap = findings.difference(name, "fpr95", found.own, reference.own) if reference else None
        lines.append([
            found.row.title,
            str(len(found.records)),
            found.own,
            shown(found.estimate("auroc", found.own)),
            _marked(shown(found.estimate("fpr95", found.own)), gap),
            shown(found.estimate("fpr95_id", found.own)),
            gap_shown(gap),
            shown(found.accuracy),
            f"{found.cost('images'):,.0f}" if found.row.method else "0",
            _cost(findings, found),
        ])  # fmt: skip
    return markdown(heads, lines)


def per_set(findings: Findings) -> str:
    """FPR95 on each OOD set, with the row's own score."""
    heads = ["training", "score", *(SETS[name] for name in OOD), "mean", "validation outliers"]
    lines = [
        [
            found.row.title,
            found.own,
            *(shown(found.estimate("fpr95", found.own, name)) for name in OOD),
            shown(found.estimate("fpr95", found.own)),
            shown(found.estimate("fpr95", found.own, VALIDATION)),
        ]
        for found in findings.rows.values()
    ]
    return markdown(heads, lines)


def by_score(findings: Findings) -> str:
    """Mean FPR95 of every row with every score; marked are the score that is best on validation outliers, and the one
    that `--score auto` chooses."""
    lines = []
    for found in findings.rows.values():
        values = {score: _percent(found.estimate("fpr95", score).mean) for score in SCORES}
        marks = {score: " ←" * (score == found.best_score) + " ⇐" * (score == found.auto_score) for score in SCORES}
        lines.append([found.row.title, *(f"{value}{marks[score]}" for score, value in values.items())])
    return markdown(["training", *SCORES], lines)


def equal(findings: Findings) -> str:
    """The main rows at one learning rate, and how far they are from the first."""
    rows = [found for row in EQUAL if (found := findings.others.get(row.name)) is not None]
    lines = []
    for found in rows:
        gap = None
        if found is not rows[0]:
            gap = paired_difference(found.over_seeds("fpr95", found.own), rows[0].over_seeds("fpr95", rows[0].own))
        fpr95 = _marked(shown(found.estimate("fpr95", found.own)), gap)
        auroc = shown(found.estimate("auroc", found.own))
        lines.append([
            found.row.title, str(len(found.records)), found.own, auroc, fpr95, gap_shown(gap), shown(found.accuracy)
        ])  # fmt: skip
    heads = ["training", "seeds", "score", "AUROC ↑", "FPR95 ↓", "FPR95 − OE's", "ID accuracy"]
    return markdown(heads, lines) if lines else NO_CELLS


def single(findings: Findings, head: str, rows: Sequence[Row]) -> str:
    """Trainings at one learning rate and with one seed: other budgets, or other protocols."""
    lines = [
        [
            found.row.title,
            *(_percent(found.estimate("fpr95", score).mean) for score in ("msp", "energy", "knn")),
            _percent(found.estimate("fpr95", "msp", VALIDATION).mean),
            shown(found.accuracy),
            f"{found.cost('images'):,.0f}",
            _cost(findings, found),
        ]
        for row in rows
        if (found := findings.others.get(row.name)) is not None
    ]
    heads = [head, "FPR95, msp", "FPR95, energy", "FPR95, knn", "validation FPR95, msp", "ID accuracy", "images passed"]
    return markdown([*heads, COST], lines) if lines else NO_CELLS


def two_scores(findings: Findings, rows: Sequence[Row]) -> str:
    """The rows of a table apart, such as another network's, each with its own score and with the one that validation
    chooses."""
    lines = [
        [
            found.row.title,
            score,
            *(shown(found.estimate("fpr95", score, name)) for name in (*OOD, "")),
            shown(found.estimate("auroc", score)),
            shown(found.accuracy),
        ]
        for row in rows
        if (found := findings.others.get(row.name)) is not None
        for score in dict.fromkeys((found.own, found.chosen_score))
    ]
    heads = ["training", "score", *(f"FPR95, {SETS[name]}" for name in OOD), "mean FPR95 ↓", "mean AUROC ↑"]
    return markdown([*heads, "ID accuracy"], lines) if lines else NO_CELLS


def choices(findings: Findings) -> str:
    """The settings that validation chose for each row."""
    lines = []
    for found in findings.rows.values():
        if found.row.method:
            settings = _listed(found.trial.recipe.options)
            own = shown(found.estimate("fpr95", found.own, VALIDATION))
            best = f"{found.best_score}: {shown(found.estimate('fpr95', found.best_score, VALIDATION))}"
            tried = f"{found.tried} of {found.worth_trying}"
            lines.append([found.row.title, tried, f"{found.trial.recipe.lr:g}", settings, own, best])
    heads = ["training", "candidates computed", "learning rate", "settings", "validation FPR95, own score"]
    return markdown([*heads, "best score there"], lines)


def agreement(findings: Findings) -> str:
    """How far the OOD sets agree on the order of the rows."""
    taus = findings.agreement() if len(findings.rows) > 2 else {}
    pairs = ", ".join(f"{SETS[a]} and {SETS[b]} {tau:.2f}" for (a, b), tau in taus.items())
    return f"Kendall's tau between the orders of the rows by FPR95: {pairs}." if taus else "There are too few rows yet."


def goal(findings: Findings) -> str:
    """The recommended row beside OE with MSP, OE with its best score, MaCS, and the best of all papers' methods."""
    choice, reference = findings.recommended(), findings.rows.get(REFERENCE)
    if choice is None or reference is None:
        return "There are too few cells to recommend anything yet."
    recommended, score = choice
    papers = [found for found in findings.rows.values() if found.row.method and not found.row.ours]
    best = min(papers, key=lambda found: found.estimate("fpr95", found.chosen_score).mean)
    shown_rows = [("recommended", recommended, score), ("OE with MSP", reference, "msp")]
    shown_rows += [("OE, score chosen on validation", reference, reference.chosen_score)]
    if "macs" in findings.rows:
        macs = findings.rows["macs"]
        shown_rows += [("MaCS with MSP", macs, "msp"), ("MaCS, score chosen on validation", macs, macs.chosen_score)]
    shown_rows += [("best of the papers' methods on the test sets", best, best.chosen_score)]
    if "plain" in findings.rows:
        plain = findings.rows["plain"]
        shown_rows += [("no training, score chosen on validation", plain, plain.chosen_score)]
    lines = [
        [label, found.row.title, how, shown(found.estimate("auroc", how)), shown(found.estimate("fpr95", how)),
         gap_shown(findings.difference(found.row.name, "fpr95", how, "msp")), shown(found.accuracy)]
        for label, found, how in shown_rows
    ]  # fmt: skip
    heads = ["", "training", "score", "AUROC ↑", "FPR95 ↓", "FPR95 − that of OE with MSP", "ID accuracy"]
    return markdown(heads, lines) + "\n\n" + _verdict(recommended, score, reference, best)


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
        second = (
            f"It is {abs(100 * (ours - theirs)):.2f} points {side} the best of the papers' methods ({_sure(paired)})."
        )
    gap = 100 * (recommended.accuracy.mean - reference.accuracy.mean)
    return f"{first} {second} Its ID accuracy is {abs(gap):.2f} points {'below' if gap < 0 else 'above'} OE's."


def claims(findings: Findings, wanted: Sequence[Claim]) -> str:
    """Comparisons of two rows or scores, each with its cells."""
    every_row = {**findings.others, **findings.rows}

    def resolved(name: str, score: str) -> tuple[RowResult, str] | None:
        found = every_row.get(findings.best if name == RECOMMENDED else name)
        return None if found is None else (found, found.chosen_score if score == BEST else score)

    pairs = [(resolved(*ours), resolved(*theirs), where) for ours, theirs, where in wanted]
    lines = [
        f"- {_compared(ours, theirs, where)}"
        for ours, theirs, where in pairs
        if ours is not None and theirs is not None and ours != theirs
    ]
    return "\n".join(dict.fromkeys(lines))  # the recommended method may have a claim of its own already


def _compared(ours: tuple[RowResult, str], theirs: tuple[RowResult, str], where: str) -> str:
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
    """How far a difference is to be trusted."""
    if paired is None or paired.pairs < 2:
        return "one seed"
    return f"{'' if paired.significant else 'not '}significant over {paired.pairs} seeds"


def auto(findings: Findings) -> str:
    """What the cells recommend, and what `--method auto` does."""
    choice = findings.recommended()
    if choice is None:
        return "There are too few cells to recommend anything yet."
    found, score = choice
    recipe, options = found.trial.recipe, dict(found.trial.recipe.options)
    rule = "lowest FPR95 on validation outliers among candidates that are, up to a standard error, as accurate as OE"
    how = _listed({"learning rate": f"{recipe.lr:g}", **found.row.recipe})
    ours = f"{found.row.method} with {_listed(options)} ({how}), scored by {score}"
    same = (found.row.method, options) == (METHOD, SETTINGS)
    now = "which is `--method auto`" if same else f"whereas `--method auto` is {METHOD} with {_listed(SETTINGS)}"
    return f"By the {rule}, the cells recommend {ours}; {now}."


def _listed(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items()) or "its defaults"


def cells(findings: Findings) -> str:
    """Which cells the numbers of each row come from."""
    lines = [
        [_with_network(found.row), " ".join(f"{seed}: {record.key}" for seed, record in found.records.items())]
        for found in (*findings.rows.values(), *findings.others.values())
    ]
    return markdown(["training", "cells by seed"], lines)


def _with_network(row: Row) -> str:
    return row.title if row.net == NET else f"{row.title}, {row.net}"


def as_dict(findings: Findings) -> dict[str, Any]:
    """All numbers of the tables, as shares."""
    rows = {}
    for name, found in {**findings.rows, **findings.others}.items():
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
            "relative_cost": found.relative_cost(findings.oe_seconds),
            "scores": {
                score: {
                    where: {metric: list(found.over_seeds(metric, score, where).values()) for metric in METRICS}
                    for where in (VALIDATION, *OOD)
                }
                for score in SCORES
            },
        }
    return {"images_per_training": IMAGES, "missing_cells": findings.missing, "rows": rows}


def shown(value: Estimate) -> str:
    """A share in percent, with its standard error where there are several seeds."""
    return _percent(value.mean) if math.isnan(value.error) else f"{_percent(value.mean)} ± {_percent(value.error)}"


def gap_shown(gap: Difference | None) -> str:
    """A difference in points, with its interval where there are several pairs."""
    if gap is None:
        return "–"
    mean = f"{100 * gap.mean:+.2f}"
    if math.isnan(gap.half_width):
        return f"{mean} (one seed)"
    return f"{mean} [{100 * (gap.mean - gap.half_width):+.2f}, {100 * (gap.mean + gap.half_width):+.2f}]"


def _marked(text: str, gap: Difference | None) -> str:
    """Bold if it is below OE's and the interval of the difference excludes 0."""
    return f"**{text}**" if gap is not None and gap.significant and gap.mean < 0 else text


def _cost(findings: Findings, found: RowResult) -> str:
    cost = found.relative_cost(findings.oe_seconds)
    return "–" if cost is None else f"{cost:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
