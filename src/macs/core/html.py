"""Tables in HTML, as notebooks show them; every text from outside is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from macs.core.text import printable


def table(headings: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "", note: str = "") -> str:
    """Return a table whose first column names the row; without headings, a list of facts."""
    head = "".join(f'<th scope="col">{_text(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row" style="text-align: left">{_text(first)}</th>'
        + "".join(f'<td style="text-align: {"right" if headings else "left"}">{_text(cell)}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    title = f'<caption style="text-align: left; font-weight: bold">{_text(caption)}</caption>' if caption else ""
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    below = f"<p>{_text(note)}</p>" if note else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>{below}"


def _text(value: object) -> str:
    return escape(printable(str(value)))
