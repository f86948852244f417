"""Results as tables for people: percentages, with set sizes and conventions beside them."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from macs.evaluation.results import COVERAGES
from macs.metrics import Metric, available, mean_and_error, shown

if TYPE_CHECKING:
    from macs.evaluation import Evaluation, Ranking
    from macs.evaluation.benchmarks import BenchmarkResult

PER_SET = ("auroc", "fpr95", "fpr95_id")  # metrics that a ranking shows set by set, unless others are asked for
IN_ROW, IN_HEADING = 40, 16  # letters of a set's name


def evaluation_tables(evaluation: "Evaluation", metrics: Sequence[str] | None = None) -> RenderableType:
    """Both protocols of an evaluation, one table each."""
    columns = shown(metrics)
    drawn = evaluation.drawn
    trials = evaluation.protocol.trials
    accuracy = mean_and_error(evaluation.draw_accuracies)
    full = _table(f"Full sets: {evaluation.images:,} ID images of {evaluation.id}, score {evaluation.score}", columns)
    draws = _table(f"{trials} draws of {drawn:,} ID images and as many OOD: mean ± standard error", columns)
    names = short_names([result.name for result in evaluation.sets], IN_ROW)
    for name, result in zip(names, evaluation.sets, strict=True):
        full.add_row(escape(name), f"{result.images:,}", *(percent(result.full[m.name]) for m in columns))
        values = ([draw[m.name] for draw in result.draws] for m in columns)
        draws.add_row(escape(name), f"{min(drawn, result.images):,}", *(with_error(v) for v in values))
    full.add_section()
    full.add_row("mean", "", *(percent(evaluation.mean(m.name)) for m in columns))
    draws.add_section()
    draws.add_row("mean", "", *(with_error(evaluation.draw_means(m.name)) for m in columns))
    return Group(
        f"ID accuracy {percent(evaluation.accuracy)}% (draws: {percent(accuracy[0])} ± {percent(accuracy[1])})",
        *selective_line(evaluation),
        *([] if evaluation.reliability is None else [escape(str(evaluation.reliability))]),
        full,
        draws,
        *conventions(columns),
        threshold(evaluation),
    )


def selective_line(evaluation: "Evaluation") -> list[str]:
    """Say how accurate the most confident predictions are, for those who ask whether an answer is right."""
    curve = evaluation.selective
    if curve is None:
        return []
    shares = ", ".join(f"{share:.0%}" for share in COVERAGES)
    accuracies = ", ".join(f"{percent(curve.accuracy_at(share))}%" for share in COVERAGES)
    return [
        f"on the most confident {shares} of the ID images: {accuracies}; AURC {percent(curve.aurc)}% (the mean error "
        "over all such shares, lower is better)"
    ]


def ranking_table(ranking: "Ranking", metrics: Sequence[str] | None = None) -> RenderableType:
    """One row per score: means over the OOD sets, then one table per metric with a column for each set."""
    columns, best = shown(metrics), ranking.evaluations[0]
    aurc = ["AURC ↓"] if best.selective else []
    means = _score_table("Full sets: means over the OOD sets", [*map(_heading, columns), *aurc])
    for evaluation in ranking.evaluations:
        curve = [percent(evaluation.selective.aurc)] if evaluation.selective else []
        means.add_row(escape(evaluation.score), *(percent(evaluation.mean(m.name)) for m in columns), *curve)
    names = short_names([result.name for result in best.sets], IN_HEADING)
    tables = []
    for metric in shown(metrics or PER_SET) if len(names) > 1 else ():
        per_set = _score_table(f"Full sets: {metric.label} {metric.arrow}", map(escape, names))
        for evaluation in ranking.evaluations:
            values = (percent(result.full[metric.name]) for result in evaluation.sets)
            per_set.add_row(escape(evaluation.score), *values)
        tables.append(per_set)
    notes = []
    if ranking.fitted:
        images = f"{ranking.train_images:,} training images of {ranking.train}"
        notes.append(escape(f"Fitted to {images}: {', '.join(ranking.fitted)}."))
    if ranking.standardised:
        images = f"{ranking.held_out_images:,} images of {ranking.held_out} that its parts are not fitted to"
        notes.append(escape(f"Each sum is standardised on {images}: {', '.join(ranking.standardised)}."))
    if ranking.fitted_held_out:
        images = f"{ranking.held_out_images:,} held-out images of {ranking.held_out}"
        notes.append(escape(f"Fitted to {images}: {', '.join(ranking.fitted_held_out)}."))
    notes += [escape(f"{name} is left out: {reason}") for name, reason in ranking.left_out.items()]
    sizes = ", ".join(f"{result.name} {result.images:,}" for result in best.sets)
    return Group(
        escape(f"{best.images:,} ID images of {best.id}, accuracy {percent(best.accuracy)}%; OOD images: {sizes}"),
        *([] if best.reliability is None else [escape(str(best.reliability))]),
        means,
        *tables,
        *notes,
        *conventions(columns),
        threshold(best),
        "The sets here are test sets: after choosing a score by this table, measure it on others.",
    )


def benchmark_tables(result: "BenchmarkResult", metrics: Sequence[str] | None = None) -> RenderableType:
    """Show all sets and the means of their groups, in the published order; then these beside the published values."""
    benchmark, first = result.benchmark, result.ranking.evaluations[0]
    columns = shown(metrics or benchmark.metrics)
    if len(result.ranking.evaluations) == 1:
        tables = [_one_score(result, columns)]
    else:
        tables = [_all_scores(result, metric) for metric in columns]
    left_out = [escape(f"{name} is left out: {reason}") for name, reason in result.ranking.left_out.items()]
    comparison = [published_table(result), escape(benchmark.origin)] if benchmark.published else []
    return Group(
        escape(f"{first.images:,} ID images of {first.id}, accuracy {percent(first.accuracy)}%"),
        *tables,
        *left_out,
        *conventions(columns),
        threshold(first),
        *comparison,
    )


def _one_score(result: "BenchmarkResult", columns: Sequence[Metric]) -> Table:
    """Make one row per set and per group, one column per metric."""
    (evaluation,) = result.ranking.evaluations
    table = _table(f"{result.benchmark.name}, score {evaluation.score}: full sets", columns)
    by_name = {on_set.name: on_set for on_set in evaluation.sets}
    for group, names in result.benchmark.groups.items():
        for name in names:
            values = (percent(by_name[name].full[m.name]) for m in columns)
            table.add_row(escape(name), f"{by_name[name].images:,}", *values)
        table.add_row(
            f"[bold]{escape(group)} mean", "", *(percent(result.mean(evaluation, group, m.name)) for m in columns)
        )
        table.add_section()
    return table


def _all_scores(result: "BenchmarkResult", metric: Metric) -> Table:
    """Make one row per score, one column per set and per group."""
    groups = result.benchmark.groups
    headings = (heading for group, names in groups.items() for heading in (*names, f"{group} mean"))
    table = _score_table(f"{result.benchmark.name}, full sets: {metric.label} {metric.arrow}", map(escape, headings))
    for evaluation in result.in_order:
        by_name = {on_set.name: on_set.full[metric.name] for on_set in evaluation.sets}
        values = (
            value
            for group, names in groups.items()
            for value in (*(by_name[name] for name in names), result.mean(evaluation, group, metric.name))
        )
        table.add_row(escape(evaluation.score), *map(percent, values))
    return table


def published_table(result: "BenchmarkResult") -> RenderableType:
    """Show the mean AUROC of each group: ours and the published one in separate columns, in the published order."""
    benchmark = result.benchmark
    groups, published = benchmark.groups, benchmark.published
    table = Table(title="Mean AUROC, computed here and published elsewhere", title_justify="left")
    for heading in ("score", "published as"):
        table.add_column(heading)
    for title in (*(f"{group}, here" for group in groups), *(f"{group}, published" for group in groups)):
        table.add_column(escape(title), justify="right")
    ours = {benchmark.published_name(evaluation.score): evaluation for evaluation in result.in_order}
    for method in (*published, *(name for name in ours if name not in published)):
        evaluation = ours.get(method)
        here = ("" if evaluation is None else percent(result.mean(evaluation, group, "auroc")) for group in groups)
        there = (f"{published[method][group]:.2f}" if method in published else "" for group in groups)
        name = "" if evaluation is None else evaluation.score
        table.add_row(escape(name), escape(method) if method in published else "", *here, *there)
    return table


def conventions(metrics: Sequence[Metric]) -> list[str]:
    """One sentence per column of a table on its meaning, and one that names the other metrics."""
    sentences = [escape(metric.sentence) for metric in metrics]
    others = [metric.label for metric in available() if metric not in metrics]
    return [*sentences, escape(f"The JSON output has {', '.join(others)} as well.")] if others else sentences


def threshold(evaluation: "Evaluation") -> str:
    """A sentence that says which threshold FPR95 takes."""
    rule = evaluation.protocol.fpr_rule
    reaches = "that reaches 95%" if rule == "first" else "to 95%, as in the authors' code"
    return f"The threshold of FPR95 is the {rule} one {reaches}."


def _table(title: str, metrics: Sequence[Metric]) -> Table:
    """An empty table with one column per metric."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("OOD set", overflow="fold")
    for name in ("images", *map(_heading, metrics)):
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _score_table(title: str, headings: Iterable[str]) -> Table:
    """An empty table with one row per score to come."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("score", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", min_width=5, overflow="fold")
    return table


def _heading(metric: Metric) -> str:
    """The heading of a column, broken into lines, since many columns have to fit."""
    return escape("\n".join(textwrap.wrap(f"{metric.label} {metric.arrow}", 11)))


def short_names(names: Sequence[str], letters: int) -> list[str]:
    """The names without the folders that all of them are in, and without their middle if they are still too long.

    Two names that would become the same keep all of their letters.
    """
    parts = [re.findall(r"[^/\\]+[/\\]*|[/\\]+", name) for name in names]
    common = 0
    while len(names) > 1 and all(len(part) > common + 1 and part[common] == parts[0][common] for part in parts):
        common += 1
    left = ["".join(part[common:]) for part in parts]
    begin, end = (letters - 1) // 3, letters - 1 - (letters - 1) // 3
    short = [name if len(name) <= letters else f"{name[:begin]}…{name[-end:]}" for name in left]
    return [name if short.count(name) == 1 else whole for name, whole in zip(short, left, strict=True)]


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def with_error(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{percent(mean)} ± {percent(error)}"


def plain_text(renderable: RenderableType, width: int = 120) -> str:
    """The console's output, as text."""
    output = StringIO()
    Console(file=output, width=width, color_system=None).print(renderable)
    return output.getvalue()
