"""Writing the study: all tables as markdown, all numbers as JSON, and the figures."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macs.core.errors import MacsError
from macs.core.files import write_text
from macs.study.findings import Findings
from macs.study.plots import draw
from macs.study.running import Study, run, sets_from
from macs.study.tables import as_dict, blocks

CELLS = Path(__file__).parents[3] / "study"  # in a clone of the repository


@dataclass(frozen=True)
class Publication:
    """What was written, and what is missing."""

    findings: Findings
    files: list[Path]

    def as_dict(self) -> dict[str, Any]:
        return {**as_dict(self.findings), "files": [str(file) for file in self.files]}

    def __str__(self) -> str:
        tables = blocks(self.findings)
        files = ", ".join(str(file) for file in self.files)
        return "\n\n".join(
            [*(tables[name] for name in ("core", "goal", "status") if name in tables), f"Wrote {files}."]
        )


def publish(
    folder: Path, cells: Path | None = None, data: Path | None = None, checkpoint: Path | None = None
) -> Publication:
    """Write tables and figures from the cells; with a checkpoint, compute the missing cells first."""
    cells = cells or CELLS
    if checkpoint is not None:
        study = Study.read(cells)
        run(study, sets_from(data, checkpoint), cells, folder / "runs")
    elif not any(cells.glob("*.json")):
        raise MacsError(
            f"There are no cells of the study in {cells}; run this in a clone of the repository, name a folder with "
            "--cells, or compute them with --data and --checkpoint."
        )
    findings = Findings.of(Study.read(cells))
    texts = {
        "study.md": "".join(f"## {name}\n\n{text}\n\n" for name, text in blocks(findings).items()),
        "study.json": json.dumps(as_dict(findings), indent=1),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return Publication(findings, [*(folder / name for name in texts), *draw(findings, folder)])
