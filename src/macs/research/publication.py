"""Results as files and on the terminal: one kind of table, for the paper's tables and figures and for the study.

A `ResultTable` is text in rows, written as Markdown, LaTeX or a table on the terminal. A `Publication` holds tables,
notes and the numbers behind them; `publish` writes it with its figures.
"""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from macs.core.files import write_text
from macs.core.text import csv_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mark = Literal["", "best", "second"]
Text = tuple[str, Mark]


@dataclass(frozen=True)
class ResultTable:
    """Rows below one header, in sections that may have a title, and text below them; or text alone."""

    title: str = ""
    header: Sequence[str] = ()
    sections: Mapping[str, Sequence[Sequence[Text]]] = field(default_factory=dict)
    text: str = ""
    align: Literal["l", "r"] = "l"  # of all columns but the first

    @property
    def markdown(self) -> str:
        """GitHub's Markdown, without the title; the second best of a column is underlined with HTML."""
        styles = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}
        rule = "---" if self.align == "l" else "---:"
        lines = [self.header, ["---", *[rule] * (len(self.header) - 1)]] if self.header else []
        for section, rows in self.sections.items():
            lines += [[f"*{section}*", *[""] * (len(self.header) - 1)]] if section else []
            lines += [[styles[mark].format(text) for text, mark in row] for row in rows]
        return "\n\n".join(filter(None, ["\n".join(f"| {' | '.join(line)} |" for line in lines), self.text]))

    @property
    def latex(self) -> list[str]:
        """The lines of one tabular, for the packages booktabs and inputenc; text becomes comments."""
        styles = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
        width, comments = len(self.header), [f"% {line}" for line in self.text.splitlines()]
        if not width:
            return comments
        lines = [rf"\begin{{tabular}}{{l{self.align * (width - 1)}}}", r"\toprule"]
        lines += [rf"\multicolumn{{{width}}}{{l}}{{{tex(self.title)}}} \\", r"\midrule"]
        lines += [" & ".join(map(tex, self.header)) + r" \\"]
        for section, rows in self.sections.items():
            lines.append(r"\midrule")
            lines += [rf"\multicolumn{{{width}}}{{l}}{{\emph{{{tex(section)}}}}} \\"] if section else []
            lines += [" & ".join(styles[mark].format(tex(text)) for text, mark in row) + r" \\" for row in rows]
        return [*lines, r"\bottomrule", r"\end{tabular}", *comments]

    def __rich__(self) -> RenderableType:
        styles = {"": "{}", "best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]"}
        table = Table(title=escape(self.title), title_justify="left")
        for index, name in enumerate(self.header):
            right = self.align == "r" and index
            no_wrap = self.align == "r" and not index
            table.add_column(name, justify="right" if right else "left", no_wrap=no_wrap, overflow="fold")
        for section, rows in self.sections.items():
            if section:
                table.add_row(f"[italic]{escape(section)}[/italic]")
            for row in rows:
                table.add_row(*(styles[mark].format(escape(text)) for text, mark in row))
            table.add_section()
        return Group(*([table] if self.header else []), *([escape(self.text)] if self.text else []))


@dataclass(frozen=True)
class Publication:
    """A table or figure of the paper, or the whole study, and the files that it was written to."""

    name: str  # of its files
    title: str
    tables: Sequence[ResultTable]
    records: Sequence[Mapping[str, Any]]  # one per number, for CSV
    values: Mapping[str, Any]  # everything, for JSON
    notes: Sequence[str] = ()
    on_terminal: Sequence[ResultTable] | None = None  # tables that fit the terminal better, if those do not
    files: Sequence[Path] = ()
    named: Callable[[Path], str] = str  # how users know a file: it may be behind a URL

    def __rich__(self) -> RenderableType:
        tables = self.tables if self.on_terminal is None else self.on_terminal
        files = map(self.named, self.files)
        return Group(f"\n[bold]{escape(self.title)}[/bold]", *tables, *map(escape, (*self.notes, *files)))

    def as_dict(self) -> dict[str, Any]:
        return {**self.values, "files": [self.named(file) for file in self.files]}

    def markdown(self) -> str:
        parts = [f"## {table.title}\n\n{table.markdown}\n" for table in self.tables]
        return "\n".join([f"# {self.title}\n", *parts, *(f"- {note}" for note in self.notes)]) + "\n"

    def latex(self) -> str:
        """Return one tabular per table; notes are comments."""
        comments = [f"% {line}" for line in (self.title, *self.notes)]
        return "\n".join([*comments, *(line for table in self.tables for line in ("", *table.latex))]) + "\n"

    def comma_separated(self) -> str:
        """Return one line per number, with everything that is known about it."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.records[0])
        for record in self.records:
            writer.writerow([csv_cell(value) if isinstance(value, str) else value for value in record.values()])
        return text.getvalue()


def publish(publication: Publication, folder: Path, drawn: "Mapping[str, Figure] | None" = None) -> Publication:
    """Write the figures, and the numbers, if any, as Markdown, LaTeX, CSV and JSON; return what was written."""
    from macs import figures

    files = [file for name, figure in (drawn or {}).items() for file in figures.save(figure, folder / name)]
    if publication.records:
        texts = {
            "md": publication.markdown(),
            "tex": publication.latex(),
            "csv": publication.comma_separated(),
            "json": json.dumps(publication.values, indent=1),
        }
        for suffix, text in texts.items():
            files.append(folder / f"{publication.name}.{suffix}")
            write_text(files[-1], text)
    return replace(publication, files=files)


def plain(rows: Sequence[Sequence[str]]) -> list[list[Text]]:
    """Return rows of text without any mark."""
    return [[(text, "") for text in row] for row in rows]


def tex(text: str) -> str:
    """Escape text so that LaTeX prints it as it stands."""
    special = {"\\": r"\textbackslash{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--"}
    special |= {"−": "$-$", "←": r"$\leftarrow$", "⇐": r"$\Leftarrow$"}
    special |= {sign: rf"\{sign}" for sign in "&%$#_{}"} | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(sign, sign) for sign in text)
