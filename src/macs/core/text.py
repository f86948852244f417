"""Text from outside, such as file names, made safe to print, to write, and to show in a notebook."""

import re
from collections.abc import Iterable, Sequence

SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot encode
CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")  # some steer a terminal
FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")  # the last four are full-width


def printable(text: str) -> str:
    """Return the text on one line, with surrogates, control characters and invisible characters escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def whole(text: str) -> str:
    """Return the text with surrogates, which cannot be encoded, and NUL, at which CSV readers stop, escaped."""
    return SURROGATE.sub(lambda match: _escaped(match.group()), text).replace("\0", "\\x00")


def csv_cell(text: str) -> str:
    """Return the text for a cell of a CSV file: escape control characters, and quote what looks like a formula."""
    text = CONTROL.sub(lambda match: _escaped(match.group()), whole(text))
    return f"'{text}" if text.startswith(FORMULA) else text


def in_a_cell(value: object) -> str:
    """Return the value as text that breaks neither a line nor a table of Markdown, and brings no markup or link."""
    text = printable(str(value)).replace("&", "&amp;").replace("<", "&lt;")
    return text.replace("|", r"\|").replace("[", r"\[").replace("`", "'")


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # Python's stand-in for a byte of a file name that is not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def html_table(headings: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "", note: str = "") -> str:
    """Return an HTML table whose first column names the row; without headings, a list of facts."""
    head = "".join(f'<th scope="col">{_html(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row" style="text-align: left">{_html(first)}</th>'
        + "".join(f'<td style="text-align: {"right" if headings else "left"}">{_html(cell)}</td>' for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    title = f'<caption style="text-align: left; font-weight: bold">{_html(caption)}</caption>' if caption else ""
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    below = f"<p>{_html(note)}</p>" if note else ""
    return f"<table>{title}{top}<tbody>{body}</tbody></table>{below}"


def _html(value: object) -> str:
    from html import escape  # which no command needs

    return escape(printable(str(value)))
