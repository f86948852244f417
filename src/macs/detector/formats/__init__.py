"""Output formats for rows of verdicts, which are written as they come: one file per format.

    @output_format("tsv", suffix=".tsv")
    def write_tsv(rows: Iterable[Verdict], file: TextIO) -> None: ...

The function of a text format gets an open file; that of a `binary` format gets the path of the file to write. A new
format is one new file here, or anywhere on your path as `--format mine:write_tsv`.
"""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO

from macs.core.errors import MacsError
from macs.core.registry import Registry, users_code
from macs.core.text import whole
from macs.predictions import Verdict


@dataclass(frozen=True)
class OutputFormat:
    """A way to write verdicts. (Without these words, Python 3.11.2 fails to make up some, because of __wrapped__.)"""

    name: str
    suffix: str  # of files in this format
    write: Callable[..., None]
    binary: bool = False
    needs: str = ""  # a package that must be installed; our extra with the name of the format installs it

    @property
    def __wrapped__(self) -> Callable[..., None]:
        return self.write

    def check(self, out: Path | None) -> None:
        """Refuse a format that cannot be written here."""
        if self.binary and out is None:
            raise MacsError(f"The format {self.name} is written to a file; name one with --out.")
        if self.needs and find_spec(self.needs) is None:
            raise MacsError(f"The format {self.name} needs {self.needs}: pip install 'macs-ood[{self.name}]'.")

    def write_stream(self, rows: Iterable[Verdict], file: TextIO) -> None:
        """Write all rows to an open text file, perhaps standard output."""
        if self.write.__module__.startswith("macs."):
            self.write(rows, file)
        else:
            with users_code(f"The output format {self.name} failed"):
                self.write(rows, file)

    def write_file(self, rows: Iterable[Verdict], path: Path) -> None:
        """Write all rows to a file."""
        if self.binary:
            self.write(rows, path)
        else:
            with path.open("w", encoding="utf-8", newline="") as file:
                self.write_stream(rows, file)


formats: Registry[OutputFormat] = Registry("macs.detector.formats", "output format")


def output_format(
    name: str, *, suffix: str, binary: bool = False, needs: str = ""
) -> Callable[[Callable[..., None]], OutputFormat]:
    """Register the decorated function as a format."""

    def add(write: Callable[..., None]) -> OutputFormat:
        return formats(name)(OutputFormat(name, suffix, write, binary, needs))

    return add


def choose_format(wanted: str | None, out: Path | None, terminal: bool) -> OutputFormat:
    """The wanted format, else that of the file's suffix, else a table on a terminal and CSV elsewhere."""
    if wanted is None and out is not None:
        suffixes = {entry.suffix: name for name, entry in formats.entries().items()}
        if out.suffix not in suffixes:
            endings = ", ".join(sorted(suffixes))
            raise MacsError(f"{out} has no suffix of a known format; let it end in {endings}, or give --format.")
        wanted = suffixes[out.suffix]
    name = wanted or ("table" if terminal else "csv")
    chosen = formats[name]
    if not isinstance(chosen, OutputFormat):
        raise MacsError(f"{name} is not an output format; decorate a function with @output_format(...).")
    chosen.check(out)
    return chosen


def values_of(row: Verdict) -> list[Any]:
    """The fields of a row, with characters escaped that UTF-8 cannot encode."""
    return [whole(value) if isinstance(value, str) else value for value in astuple(row)]
