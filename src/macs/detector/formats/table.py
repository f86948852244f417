"""A table for people, in columns of fixed width; the path comes last, since its width is not known in advance."""

from collections.abc import Iterable
from typing import TextIO

from macs.core.text import printable
from macs.detector.formats import output_format
from macs.predictions import Verdict


@output_format("table", suffix=".txt")
def write_table(rows: Iterable[Verdict], file: TextIO) -> None:
    print(f"{'verdict':8} {'confidence':>10} {'p-value':>8}  {'class':20} path", file=file)
    for row in rows:
        if row.is_ood is None:
            line = f"{'failed':8} {'-':>10} {'-':>8}  {'-':20} {row.path}: {row.reason}"
        else:
            p_value = "-" if row.p_value is None else f"{row.p_value:.4f}"
            verdict = "OOD" if row.is_ood else "ID"
            line = f"{verdict:8} {row.confidence:>10.4f} {p_value:>8}  {row.class_ or '-':20} {row.path}"
        print(printable(line), file=file)
