"""Figures in the paper's form: the confidences of a method (Figs. 1 and 3) and the effect of the margin (4 and 5);
and comparisons of methods.

Each function takes plain records and returns a matplotlib Figure at the size of a column or a page; `save` writes it.
Every record names its source, and numbers from different sources are never joined into one series. A single source is
named above the legend, several beside the series that they belong to.
"""

from macs.figures._drawing import save
from macs.figures.comparisons import CostPoint, Gap, gaps, heat_map, quality_against_cost
from macs.figures.confidences import BoxGroup, DensityPanel, FiveNumbers, confidence_boxes, densities
from macs.figures.margin_effect import BoundBar, MarginCurve, bound_bars, margin_curves

__all__ = [
    "BoundBar",
    "BoxGroup",
    "CostPoint",
    "DensityPanel",
    "FiveNumbers",
    "Gap",
    "MarginCurve",
    "bound_bars",
    "confidence_boxes",
    "densities",
    "gaps",
    "heat_map",
    "margin_curves",
    "quality_against_cost",
    "save",
]
