"""The code blocks of Markdown files, fenced and indented, and the command lines in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^ *(```+)(\w*)")
ASSIGNMENT = re.compile(r"^\w+=\S*$")
ENDS = ("|", ">", ">>", "<", "&&", "||", ";", "&", "2>")  # what follows belongs to the shell


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str  # empty for an indented block
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place} {shlex.join(self.words)}"


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    lines = page.read_text(encoding="utf-8").splitlines()
    found, at = [], 0
    while at < len(lines):
        start, fence = at, FENCE.match(lines[at])
        if fence:
            at = next(place for place in range(at + 1, len(lines)) if lines[place].strip() == fence[1])
            found.append(Block(page, start + 1, fence[2], "\n".join(lines[start + 1 : at])))
        elif lines[at].startswith("    ") and (at == 0 or not lines[at - 1].strip()):
            while at + 1 < len(lines) and (lines[at + 1].startswith("    ") or not lines[at + 1].strip()):
                at += 1
            found.append(Block(page, start + 1, "", "\n".join(line.strip() for line in lines[start : at + 1])))
        at += 1
    return found


def commands_in(block: Block, programs: tuple[str, ...] = ("macs",)) -> Iterator[Command]:
    """The command lines of a block that call one of these programs."""
    for line in block.text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a line of output with an apostrophe
            continue
        while words and ASSIGNMENT.match(words[0]):
            words = words[1:]
        if words and words[0] in programs:
            end = next((place for place, word in enumerate(words) if word in ENDS), len(words))
            yield Command(block.place, tuple(words[:end]))
