"""The figures of the paper, from its numbers or from ours: confidences (Figs. 1 and 3) and margins (Figs. 4 and 5).

Each function takes plain records and returns a matplotlib Figure at the size of a column or a page; `save` writes it.
Every record names its source, and numbers of different sources are never joined to one series: one source stands above
the legend, several stand beside what they belong to.
"""

from macs.paper.figures._drawing import save
from macs.paper.figures.confidences import BoxGroup, DensityPanel, confidence_boxes, densities, paper_boxes
from macs.paper.figures.margins import BoundBar, MarginCurve, bound_bars, margin_curves, paper_bars, paper_curves

__all__ = [
    "BoundBar",
    "BoxGroup",
    "DensityPanel",
    "MarginCurve",
    "bound_bars",
    "confidence_boxes",
    "densities",
    "margin_curves",
    "paper_bars",
    "paper_boxes",
    "paper_curves",
    "save",
]
