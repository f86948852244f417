"""Figures in the form of the paper's: what confidences a method gives (Figs. 1 and 3), what the margin does (4 and 5).

Each function takes plain records and returns a matplotlib Figure at the size of a column or a page; `save` writes it.
Every record names its source, and numbers of different sources are never joined to one series: one source stands above
the legend, several stand beside what they belong to.
"""

from macs.figures._drawing import save
from macs.figures.confidences import BoxGroup, DensityPanel, FiveNumbers, confidence_boxes, densities
from macs.figures.margin_effect import BoundBar, MarginCurve, bound_bars, margin_curves

__all__ = [
    "BoundBar",
    "BoxGroup",
    "DensityPanel",
    "FiveNumbers",
    "MarginCurve",
    "bound_bars",
    "confidence_boxes",
    "densities",
    "margin_curves",
    "save",
]
