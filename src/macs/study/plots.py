"""The study's figures."""

import math
from pathlib import Path

from macs import figures
from macs.study.findings import Findings
from macs.study.plan import COSTS, OOD, SCORES
from macs.study.running import REFERENCE
from macs.study.tables import SETS

FPR95 = "FPR95 (%), OOD positive"


def draw(findings: Findings, folder: Path) -> list[Path]:
    """Write every figure that the cells allow, as SVG, PDF and PNG."""
    files: list[Path] = []
    gaps = differences(findings)
    if gaps:
        files += figures.save(figures.gaps(gaps, "OE", "FPR95"), folder / "differences")
    rows = [found.row.title for found in findings.rows.values()]
    values = [[100 * found.estimate("fpr95", score).mean for score in SCORES] for found in findings.rows.values()]
    if rows:
        files += figures.save(figures.heat_map(rows, SCORES, values, f"mean {FPR95}"), folder / "scores")
    points = costs(findings)
    if points:
        drawn = figures.quality_against_cost(
            points, "CPU time of training, OE with 2,000 images = 1", f"mean {FPR95}, msp"
        )
        files += figures.save(drawn, folder / "cost")
    return files


def differences(findings: Findings) -> list[figures.Gap]:
    """FPR95 of each row with its own score minus that of OE with MSP: the mean over sets, then set by set."""
    reference = findings.rows.get(REFERENCE)
    if reference is None:
        return []
    items = []
    for where, panel in {"": "mean of four", **{name: SETS[name] for name in OOD}}.items():
        for name, found in findings.rows.items():
            gap = findings.difference(name, "fpr95", found.own, reference.own, where)
            if gap is not None:
                half_width = None if math.isnan(gap.half_width) else 100 * gap.half_width
                items.append(figures.Gap(panel, found.row.title, 100 * gap.mean, half_width))
    return items


def costs(findings: Findings) -> list[figures.CostPoint]:
    """OE with each budget, and the classifier that it starts from, as far as their costs can be compared."""
    rows = [findings.rows.get("plain"), *(findings.others.get(row.name) for row in COSTS)]
    return [
        figures.CostPoint(found.row.title, cost, 100 * found.estimate("fpr95", found.own).mean)
        for found in rows
        if found is not None and (cost := found.relative_cost(findings.oe_seconds)) is not None
    ]
