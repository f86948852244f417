"""Write what the cells say into the documents that hold its tables, and draw the figures beside them.

.venv/bin/python study/refresh.py
"""

from pathlib import Path

from macs.study.document import refreshed
from macs.study.findings import Findings
from macs.study.plots import draw
from macs.study.running import Study
from macs.study.tables import blocks

ROOT = Path(__file__).parents[1]

findings = Findings.of(Study.read(ROOT / "study"))
for document in (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "study.md"):
    text = document.read_text(encoding="utf-8")
    document.write_text(refreshed(text, blocks(findings)), encoding="utf-8")
for file in draw(findings, ROOT / "docs" / "study"):
    if file.suffix != ".svg":
        file.unlink()
