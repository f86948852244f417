"""Results as tables for people: percentages, with set sizes and conventions beside them."""

from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from macs.metrics import mean_and_error

if TYPE_CHECKING:
    from macs.evaluation import Evaluation, Ranking

TITLES = {"auroc": "AUROC ↑", "aupr": "AUPR ↑", "fpr95": "FPR95 ↓", "aupr_id": "AUPR-ID ↑", "fpr95_id": "FPR95-ID ↓"}
CONVENTIONS = (
    "AUPR and FPR95 take OOD as positive, as the paper, OpenOOD and pytorch-ood do: FPR95 is the share of ID images\n"
    "flagged when 95% of OOD images are caught. AUPR-ID and FPR95-ID take ID as positive, as energy_ood and DivOE do:\n"
    "the share of OOD images accepted when 95% of ID images are kept. AUROC is the same either way. AUPR is average\n"
    "precision; by the trapezoidal rule, as OpenOOD and pytorch-ood have it, it is in the JSON output."
)


def evaluation_tables(evaluation: "Evaluation") -> RenderableType:
    """Both protocols of an evaluation, one table each."""
    drawn = evaluation.drawn
    trials = len(evaluation.draw_accuracies)
    accuracy = mean_and_error(evaluation.draw_accuracies)
    full = table(f"Full sets: {evaluation.images:,} ID images of {evaluation.id}, score {evaluation.score}", "images")
    draws = table(f"{trials} draws of {drawn:,} ID images and as many OOD: mean ± standard error", "images")
    for result in evaluation.sets:
        full.add_row(escape(result.name), f"{result.images:,}", *(percent(getattr(result.full, m)) for m in TITLES))
        values = ([getattr(draw, m) for draw in result.draws] for m in TITLES)
        draws.add_row(escape(result.name), f"{min(drawn, result.images):,}", *(with_error(v) for v in values))
    full.add_section()
    full.add_row("mean", "", *(percent(evaluation.mean(m)) for m in TITLES))
    draws.add_section()
    draws.add_row("mean", "", *(with_error(evaluation.draw_means(m)) for m in TITLES))
    return Group(
        f"ID accuracy {percent(evaluation.accuracy)}% (draws: {percent(accuracy[0])} ± {percent(accuracy[1])})",
        full,
        draws,
        CONVENTIONS,
        threshold(evaluation),
    )


def ranking_table(ranking: "Ranking") -> RenderableType:
    """A row for each score: means over the OOD sets, then AUROC set by set."""
    best = ranking.evaluations[0]
    made = Table(title="Full sets: means over the OOD sets, then each set's AUROC", title_justify="left")
    made.add_column("score", no_wrap=True)
    metrics = [title.replace(" ", "\n") for title in TITLES.values()]  # narrow, since there are many
    for title in (*metrics, *(f"{escape(result.name)}\n{metrics[0]}" for result in best.sets)):
        made.add_column(title, justify="right", min_width=5)
    for each in ranking.evaluations:
        means = (percent(each.mean(metric)) for metric in TITLES)
        made.add_row(escape(each.score), *means, *(percent(result.full.auroc) for result in each.sets))
    notes = [escape(f"{name} is left out: {reason}") for name, reason in ranking.left_out.items()]
    if ranking.fitted:
        images = f"{ranking.train_images:,} training images of {ranking.train}"
        notes.insert(0, escape(f"Fitted to {images}: {', '.join(ranking.fitted)}."))
    sizes = ", ".join(f"{result.name} {result.images:,}" for result in best.sets)
    return Group(
        escape(f"{best.images:,} ID images of {best.id}, accuracy {percent(best.accuracy)}%; OOD images: {sizes}"),
        made,
        *notes,
        CONVENTIONS,
        threshold(best),
        "The sets here are test sets: after choosing a score by this table, measure it on others.",
    )


def threshold(evaluation: "Evaluation") -> str:
    """Which threshold FPR95 takes, in a sentence."""
    reaches = "that reaches 95%" if evaluation.fpr_rule == "first" else "to 95%, as in the authors' code"
    return f"The threshold of FPR95 is the {evaluation.fpr_rule} one {reaches}."


def table(title: str, *columns: str) -> Table:
    """An empty table with a column for each metric."""
    made = Table(title=escape(title), title_justify="left")
    made.add_column("OOD set")
    for name in (*columns, *TITLES.values()):
        made.add_column(name, justify="right", no_wrap=True)
    return made


def percent(value: float) -> str:
    return f"{100 * value:.2f}"


def with_error(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{percent(mean)} ± {percent(error)}"


def plain_text(renderable: RenderableType, width: int = 120) -> str:
    """What the console would show, as text."""
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(renderable)
    written = console.file
    assert isinstance(written, StringIO)
    return written.getvalue()
