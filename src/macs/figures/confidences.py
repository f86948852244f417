"""The paper's Figs. 1 and 3: the confidences that a method gives to known and to unknown images."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.figures._drawing import (
    COLUMN,
    PAGE,
    Look,
    distinct,
    every,
    finish,
    grid,
    look,
    name,
    style,
    with_source,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "Confidence (higher: ID)"
GRID = 256  # points of a density


@dataclass(frozen=True)
class FiveNumbers:
    """The five numbers that a box shows, for when the confidences themselves are not known."""

    whisker_low: float
    quartile_low: float
    median: float
    quartile_high: float
    whisker_high: float


@dataclass(frozen=True)
class BoxGroup:
    """A pair of boxes in Fig. 1: a method's confidences on ID and on OOD images, or the five numbers of their boxes."""

    method: str
    id_name: str
    ood_name: str
    conf_in: ArrayLike | FiveNumbers
    conf_out: ArrayLike | FiveNumbers
    source: str = "ours"


@dataclass(frozen=True)
class DensityPanel:
    """A panel of Fig. 3: confidences from 0 to 1 on ID and on OOD images; rows and columns are counted from 0."""

    title: str
    row: int
    column: int
    conf_in: ArrayLike
    conf_out: ArrayLike
    id_name: str
    ood_name: str
    source: str = "ours"


@style()
def confidence_boxes(groups: Sequence[BoxGroup]) -> "Figure":
    """Fig. 1: quartiles and median; whiskers reach the last image within 1.5 box heights, as in the paper."""
    from matplotlib.patches import Patch

    distinct(groups, lambda g: (g.method, g.id_name, g.ood_name, g.source), "group of boxes")
    sources, looks = every(groups, "source"), _looks(groups)
    figure, ((axes,),) = grid(1, 1, width=COLUMN if len(groups) <= 5 else PAGE, height=2.2)
    for position, group in enumerate(groups):
        for key, confidences, shift in ((_id(group), group.conf_in, -0.19), (_ood(group), group.conf_out, 0.19)):
            colour, _, _, hatch = looks[key]
            axes.bxp(
                [_five_numbers(confidences, f"confidences of {group.method} on {key}")],
                positions=[position + shift],
                widths=0.3,
                manage_ticks=False,
                showfliers=False,
                patch_artist=True,
                boxprops={"facecolor": colour, "hatch": hatch, "linewidth": 0.7},
                medianprops={"color": "black" if hatch else "white", "linewidth": 1.4 if hatch else 0.7},
                whiskerprops={"linewidth": 0.7},
                capprops={"linewidth": 0.7},
            )
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [with_source(name(g.method), g.source, sources, "\n") for g in groups])
    axes.tick_params(axis="x", length=0, labelsize=8)
    low, high = axes.get_ylim()
    if low > -0.1 and high < 1.1:  # a probability; other scores have limits of their own
        axes.set_ylim(-0.03, 1.03)
    axes.set_ylabel(LABEL)
    axes.grid(axis="y")
    patches = {k: Patch(facecolor=v.colour, hatch=v.hatch, edgecolor="black", linewidth=0.5) for k, v in looks.items()}
    return finish(figure, patches, sources)


@style()
def densities(panels: Sequence[DensityPanel]) -> "Figure":
    """Fig. 3: one row per network and OOD set, with MaCS on the left and OE on the right; a row shares its scale."""
    from matplotlib.patches import Patch

    places = distinct(panels, lambda p: (p.row, p.column), "panel at row and column")
    sources, looks = every(panels, "source"), _looks(panels)
    # Hatched areas have no fill: a translucent one would fade the hatches in SVG.
    fills: dict[str, dict[str, Any]] = {
        key: {"facecolor": "none" if hatch else (colour, 0.3), "edgecolor": colour, "hatch": hatch}
        for key, (colour, _, _, hatch) in looks.items()
    }
    rows, columns = (1 + max(every(panels, side)) for side in ("row", "column"))
    width = COLUMN if columns <= 2 else PAGE
    figure, all_axes = grid(rows, columns, width, height=0.6 + 1.15 * rows, sharex=True, sharey="row")
    for place, axes in np.ndenumerate(all_axes):
        panel = places.get(place)
        if panel is None:
            axes.set_visible(False)
            continue
        for key, confidences in ((_id(panel), panel.conf_in), (_ood(panel), panel.conf_out)):
            x, density = reflected_density(_finite(confidences, f"confidences of {panel.title} on {key}"))
            axes.fill_between(x, density, linewidth=0, **fills[key])
            axes.plot(x, density, color=looks[key].colour, linestyle=looks[key].line, label=key)
        axes.set_title(with_source(panel.title, panel.source, sources), pad=3)
        axes.set_xlim(0, 1)
        axes.set_ylim(bottom=0)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1], ["0", "0.2", "0.4", "0.6", "0.8", "1"])
        axes.locator_params(axis="y", nbins=5, steps=[1, 2, 5, 10])
        below = (place[0] + 1, place[1])
        axes.tick_params(axis="x", labelbottom=below not in places)
    figure.supxlabel(LABEL, fontsize=8)
    figure.supylabel("Density", fontsize=8)
    lines = {key: {"linestyle": looks[key].line, "linewidth": 1.2} for key in looks}
    return finish(figure, {key: Patch(**fills[key], **lines[key]) for key in looks}, sources)


def reflected_density(confidences: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A grid of points in [0, 1] and a Gaussian kernel density at them, which has the mean 1.

    Mass that the kernels put outside [0, 1] is reflected at the border, so that none is lost where confidences pile up.
    The bandwidth is Scott's, std * n^(-1/5), but at least two grid steps, so that equal confidences have a density too.
    """
    from scipy.ndimage import gaussian_filter1d

    if confidences.min() < 0 or confidences.max() > 1:
        raise MacsError("Densities are drawn only for confidences between 0 and 1; score the images with msp.")
    counts, edges = np.histogram(confidences, bins=GRID, range=(0, 1))
    bandwidth = max(2.0, GRID * float(confidences.std(ddof=len(confidences) > 1)) * len(confidences) ** -0.2)
    density = gaussian_filter1d(counts * (GRID / len(confidences)), bandwidth, mode="reflect")
    return (edges[:-1] + edges[1:]) / 2, density


def _five_numbers(confidences: ArrayLike | FiveNumbers, what: str) -> dict[str, Any]:
    """A box in matplotlib's form."""
    from matplotlib.cbook import boxplot_stats

    if not isinstance(confidences, FiveNumbers):
        stats: dict[str, Any] = boxplot_stats(_finite(confidences, what))[0]
        return stats
    whiskers = {"whislo": confidences.whisker_low, "whishi": confidences.whisker_high}
    return whiskers | {"q1": confidences.quartile_low, "med": confidences.median, "q3": confidences.quartile_high}


def _id(item: BoxGroup | DensityPanel) -> str:
    return f"{name(item.id_name)} (ID)"


def _ood(item: BoxGroup | DensityPanel) -> str:
    return f"{name(item.ood_name)} (OOD)"


def _looks(items: Sequence[BoxGroup] | Sequence[DensityPanel]) -> dict[str, Look]:
    """A look for every ID set, then for every OOD set."""
    keys = dict.fromkeys([*map(_id, items), *map(_ood, items)])
    return {key: look(number) for number, key in enumerate(keys)}


def _finite(confidences: ArrayLike, what: str) -> NDArray[np.float64]:
    values = np.asarray(confidences, dtype=np.float64).ravel()
    if not len(values) or not np.isfinite(values).all():
        raise MacsError(f"The {what} are missing or not all finite; look for the images that cause it.")
    return values
