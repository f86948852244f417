"""Tables in the terminal, in Markdown, LaTeX and CSV, all from the same entries."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from macs.core.text import csv_cell
from macs.metrics import available
from macs.paper.comparison import Entry

Mark = Literal["", "best", "second"]
Text = tuple[str, Mark]
RANKED = ("auroc", "aupr", "fpr95", "accuracy")


@dataclass(frozen=True)
class TableBlock:
    """Rows of text under one title; a section is a run of rows about one OOD set."""

    title: str
    header: tuple[str, ...]
    sections: dict[str, list[list[Text]]]


def blocks(entries: Sequence[Entry], metrics_at_once: int = 9) -> list[TableBlock]:
    """Entries as rows: one line per method, for each metric the paper's number, ours, and the difference.

    A block without any number of ours is left out; the notes say why.
    """
    table_blocks = []
    for title in dict.fromkeys(entry.block for entry in entries if not entry.lacking):
        members = [entry for entry in entries if entry.block == title]
        metrics = list(dict.fromkeys(entry.metric for entry in members))
        for start in range(0, len(metrics), metrics_at_once):
            table_blocks.append(_block(title, members, metrics[start : start + metrics_at_once]))
    return table_blocks


def _block(title: str, entries: list[Entry], metrics: list[str]) -> TableBlock:
    columns = [
        (metric, *column) for metric in metrics for column in _columns([e for e in entries if e.metric == metric])
    ]
    sections: dict[str, list[list[Text]]] = {}
    for section in dict.fromkeys(entry.section for entry in entries):
        members = [entry for entry in entries if entry.section == section]
        rows = dict.fromkeys(entry.row for entry in members)
        texts = [make([entry for entry in members if entry.metric == metric]) for metric, _, make in columns]
        sections[section] = [[(row, ""), *cells] for row, *cells in zip(rows, *texts, strict=True)]
    return TableBlock(title, ("", *(f"{heading(metric)} {name}" for metric, name, _ in columns)), sections)


def heading(metric: str) -> str:
    """The heading of a column; a name that is not a metric, such as a quartile, is left as it is."""
    headings = {known.name: known.heading for known in available()}
    return {**headings, "accuracy": "ID-ACC ↑"}.get(metric, metric)


def _columns(entries: list[Entry]) -> list[tuple[str, Callable[[list[Entry]], list[Text]]]]:
    """The columns of one metric: the paper's only if it prints a number, seeds only if there are several."""
    columns: list[tuple[str, Callable[[list[Entry]], list[Text]]]] = [("ours", _ours)]
    if any(entry.seeds_deviation is not None for entry in entries):
        columns.append(("seeds ±", lambda entries: [(_number(e.seeds_deviation), "") for e in entries]))
    if any(entry.paper is not None for entry in entries):
        columns = [
            ("paper", _paper),
            *columns,
            ("diff.", lambda entries: [(_signed(e.difference), "") for e in entries]),
        ]
    return columns


def _ours(entries: list[Entry]) -> list[Text]:
    marks = ranks([e.ours if e.ranked else None for e in entries], entries[0].metric)
    texts = [e.lacking or _with_error(e.ours, e.draws_error) for e in entries]
    return list(zip(texts, marks, strict=True))


def _paper(entries: list[Entry]) -> list[Text]:
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


def terminal(title: str, entries: Sequence[Entry], notes: Sequence[str]) -> RenderableType:
    """Tables for the console, with two metrics side by side where each has several columns."""
    styles = {"": "{}", "best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]"}
    tables = []
    for block in blocks(entries, 2 if any(entry.paper is not None for entry in entries) else 9):
        table = Table(title=escape(block.title), title_justify="left")
        for index, name in enumerate(block.header):
            table.add_column(name, justify="right" if index else "left", no_wrap=not index)
        for section, rows in block.sections.items():
            if section:
                table.add_row(f"[italic]{escape(section)}[/italic]")
            for row in rows:
                table.add_row(*(styles[mark].format(escape(text)) for text, mark in row))
            table.add_section()
        tables.append(table)
    return Group(f"\n[bold]{escape(title)}[/bold]", *tables, *map(escape, notes))


def markdown(title: str, entries: Sequence[Entry], notes: Sequence[str]) -> str:
    """GitHub's Markdown; the second best is underlined with HTML."""
    styles = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}
    lines = [f"# {title}", ""]
    for block in blocks(entries):
        lines += [f"## {block.title}", "", f"| {' | '.join(block.header)} |"]
        lines += ["|---" + "|---:" * (len(block.header) - 1) + "|"]
        for section, rows in block.sections.items():
            if section:
                lines.append(f"| *{section}* |" + " |" * (len(block.header) - 1))
            lines += [f"| {' | '.join(styles[mark].format(text) for text, mark in row)} |" for row in rows]
        lines.append("")
    return "\n".join([*lines, *(f"- {note}" for note in notes)]) + "\n"


def latex(title: str, entries: Sequence[Entry], notes: Sequence[str]) -> str:
    """One tabular per block, for the packages booktabs and inputenc; notes are comments."""
    styles = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    lines = [f"% {line}" for line in (title, *notes)]
    for block in blocks(entries):
        width = len(block.header)
        lines += ["", rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\toprule"]
        lines += [rf"\multicolumn{{{width}}}{{l}}{{{tex(block.title)}}} \\", r"\midrule"]
        lines += [" & ".join(map(tex, block.header)) + r" \\"]
        for section, rows in block.sections.items():
            lines.append(r"\midrule")
            if section:
                lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{tex(section)}}}}} \\")
            lines += [" & ".join(styles[mark].format(tex(text)) for text, mark in row) + r" \\" for row in rows]
        lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def comma_separated(entries: Sequence[Entry]) -> str:
    """One line per number, with everything that is known about it."""
    text = io.StringIO()
    names = [f.name for f in fields(Entry)]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, "difference"])
    for entry in entries:
        values = [*asdict(entry).values(), entry.difference]
        writer.writerow([csv_cell(value) if isinstance(value, str) else value for value in values])
    return text.getvalue()


def tex(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--"}
    special |= {sign: rf"\{sign}" for sign in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(sign, sign) for sign in text)


def _with_error(value: float | None, error: float | None) -> str:
    return _number(value) if error is None or math.isnan(error) else f"{_number(value)} ± {_number(error)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
