"""Write what the cells say into the documents that hold its tables, and draw the figures beside them.

.venv/bin/python study/refresh.py
"""

from pathlib import Path

from macs import figures
from macs.research.paper_experiments import experiment_tables
from macs.research.study import Study, StudyResults
from macs.research.study_tables import blocks, draw, refreshed

ROOT = Path(__file__).parents[1]

results = StudyResults.of(Study.read(ROOT / "study"))
texts = blocks(results) | {name: table.markdown for name, table in experiment_tables(ROOT / "study" / "paper").items()}
for document in (
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "paper.md",
    ROOT / "docs" / "study.md",
    ROOT / "docs" / "study-tables.md",
):
    text = document.read_text(encoding="utf-8")
    document.write_text(refreshed(text, texts), encoding="utf-8")
for name, figure in draw(results).items():
    for file in figures.save(figure, ROOT / "docs" / "study" / name):
        if file.suffix != ".svg":
            file.unlink()
