"""Figures show exactly the numbers they were given, name their source, are readable, and are written as whole files."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from macs import figures
from macs.core.errors import MacsError
from macs.figures import BoundBar, BoxGroup, DensityPanel, MarginCurve
from macs.figures.confidences import reflected_density
from macs.research import paper_numbers as numbers
from macs.research import paper_publication as plots

SVG = "{http://www.w3.org/2000/svg}"


def confidences(seed: int, low: float, high: float, count: int = 400) -> np.ndarray:
    return np.random.default_rng(seed).beta(low, high, count)


def panels() -> list[DensityPanel]:
    """Fig. 3: two OOD sets, two networks, two methods."""
    return [
        DensityPanel(
            f"{method}, {net}",
            row,
            column,
            confidences(row, 3, 0.5),
            confidences(9 + row + column, 0.8, 3 - column),
            "cifar100",
            ood,
        )
        for row, (ood, net) in enumerate((o, n) for o in ("isun", "svhn") for n in ("AllConv", "WRN-40-2"))
        for column, method in enumerate(("MaCS", "OE"))
    ]


def sweep() -> list[MarginCurve]:
    """One ID set and network, as `macs sweep` draws it."""
    values = {"fpr95": [20.0, 12.0, 14.0], "auroc": [95.0, 97.5, 97.0], "aupr": [93.0, 96.0, 95.5]}
    return [
        MarginCurve("digits", "wrn-10-1", metric, [0.0, 0.5, 0.9], v, errors=[0.5, 0.25, 0.125], chosen=0.5)
        for metric, v in values.items()
    ]


def ours(bars: list[BoundBar]) -> list[BoundBar]:
    return [replace(bar, value=bar.value - 0.02, error=0.3, source="ours") for bar in bars]


DRAWN: dict[str, Callable[[], Figure]] = {
    "boxes": lambda: figures.confidence_boxes(plots.paper_boxes()),
    "boxes of two sources": lambda: figures.confidence_boxes(
        [*plots.paper_boxes(), BoxGroup("macs", "cifar100", "isun", confidences(0, 3, 1), confidences(1, 1, 3))]
    ),
    "densities": lambda: figures.densities(panels()),
    "densities of one row": lambda: figures.densities(panels()[:2]),
    "curves": lambda: figures.margin_curves(plots.paper_curves()),
    "sweep": lambda: figures.margin_curves(sweep()),
    "sweep of a folder": lambda: figures.margin_curves(
        [replace(curve, id="/home/someone/data/pictures/of/mushrooms", net="my_own_module:Net") for curve in sweep()]
    ),
    "bars": lambda: figures.bound_bars(plots.paper_bars()),
    "bars of two sources": lambda: figures.bound_bars([*plots.paper_bars(), *ours(plots.paper_bars())]),
}


@cache
def drawn(kind: str) -> Any:
    """A figure for tests that only look at it."""
    return DRAWN[kind]()


def legend_of(figure: Figure) -> tuple[str, list[str]]:
    (legend,) = figure.legends
    return legend.get_title().get_text(), [text.get_text() for text in legend.get_texts()]


def texts_of(figure: Figure) -> list[Text]:
    found = [*figure.legends[0].get_texts(), figure.legends[0].get_title(), *figure.texts]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += [*axes.get_xticklabels(), *axes.get_yticklabels()]
    return [text for text in found if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("kind", DRAWN)
def test_no_text_is_cut_off_or_covers_another(kind: str) -> None:
    figure = drawn(kind)
    figure.draw_without_rendering()
    boxes = {text: text.get_window_extent() for text in texts_of(figure)}
    assert len(boxes) > 10
    width, height = figure.bbox.size
    for text, box in boxes.items():
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text
        others = [other for other, theirs in boxes.items() if other is not text and box.overlaps(theirs)]
        assert not others, (text, others)
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0 and legend.x1 <= width
    assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_figure_is_as_wide_as_a_column_or_a_page(kind: str) -> None:
    width, height = drawn(kind).get_size_inches()
    assert width in (3.5, 7.16)
    assert height < 9


def test_boxes_of_the_paper_are_drawn_as_printed() -> None:
    figure = drawn("boxes")
    (axes,) = figure.axes
    found = sorted((p.get_path().get_extents() for p in axes.patches), key=lambda extent: extent.x0)
    printed = numbers.boxes()
    assert [(box.y0, box.y1) for box in found] == [(b.quartile_low, b.quartile_high) for b in printed]
    heights = [line.get_ydata() for line in axes.lines]
    for box in printed:
        assert any((y == [box.median, box.median]).all() for y in heights)
        assert any((y == [box.quartile_low, box.whisker_low]).all() for y in heights)
        assert any((y == [box.quartile_high, box.whisker_high]).all() for y in heights)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["MSP", "OE", "MaCS"]
    assert legend_of(figure) == ("Source: paper", ["CIFAR-100 (ID)", "iSUN (OOD)"])


def test_boxes_of_confidences_follow_the_rule_that_the_papers_boxes_obey() -> None:
    for box in numbers.boxes():
        reach = 1.5 * (box.quartile_high - box.quartile_low)
        assert box.quartile_low - reach <= box.whisker_low and box.whisker_high <= box.quartile_high + reach
    known, unknown = confidences(0, 8, 1), confidences(1, 1, 4)
    (axes,) = figures.confidence_boxes([BoxGroup("oe", "a", "b", list(known), unknown)]).axes
    heights = np.array([np.sort(line.get_ydata()) for line in axes.lines])
    for values in (known, unknown):
        low, middle, high = np.percentile(values, [25, 50, 75])
        inside = [v for v in values if low - 1.5 * (high - low) <= v <= high + 1.5 * (high - low)]
        assert len(inside) < len(values)
        for pair in ([min(inside), low], [middle, middle], [high, max(inside)]):
            assert np.isclose(heights, pair, rtol=1e-12).all(axis=1).any()


def test_boxes_of_logits_keep_their_scale() -> None:
    energies = confidences(0, 2, 2) * 30
    (axes,) = figures.confidence_boxes([BoxGroup("energy", "a", "b", energies, energies - 20)]).axes
    low, high = axes.get_ylim()
    assert low < energies.min() - 20 and high > energies.max()


def by_hand(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The kernels of all values and of their mirror images behind both borders, one by one."""
    width = values.std(ddof=1) * len(values) ** -0.2
    images = np.concatenate([values, -values, 2 - values])
    kernels = np.exp(-(((x[:, None] - images) / width) ** 2) / 2) / (width * np.sqrt(2 * np.pi))
    return kernels.sum(axis=1) / len(values)


@pytest.mark.parametrize(("low", "high"), [(2, 2), (5, 0.3), (0.4, 4)])
def test_the_density_is_the_sum_of_reflected_kernels(low: float, high: float) -> None:
    values = confidences(3, low, high, 1000)
    x, density = reflected_density(values)
    expected = by_hand(values, x)
    assert np.abs(density - expected).max() < 0.01 * expected.max()
    assert density.mean() == pytest.approx(1, rel=1e-9)
    assert x[0] > 0 and x[-1] < 1


@pytest.mark.parametrize("values", [[1.0] * 50, [0.0] * 50, [0.3], [0.0, 1.0], [1.0 - 1e-9, 1.0]])
def test_equal_few_and_extreme_confidences_have_a_density_and_a_box(values: list[float]) -> None:
    x, density = reflected_density(np.array(values))
    assert density.mean() == pytest.approx(1, rel=1e-9)
    assert abs(x[density.argmax()] - np.array(values)).min() < 0.005
    figures.densities([DensityPanel("t", 0, 0, values, values, "a", "b")]).draw_without_rendering()
    figures.confidence_boxes([BoxGroup("oe", "a", "b", values, values)]).draw_without_rendering()


def test_densities_fill_the_grid_and_a_row_has_one_scale() -> None:
    figure = drawn("densities")
    assert len(figure.axes) == 8
    for panel, axes in zip(panels(), figure.axes, strict=True):
        assert axes.get_title() == panel.title
        known, unknown = axes.lines
        assert (known.get_ydata() == reflected_density(np.asarray(panel.conf_in))[1]).all()
        assert (unknown.get_ydata() == reflected_density(np.asarray(panel.conf_out))[1]).all()
        assert known.get_label() == "CIFAR-100 (ID)"
        assert unknown.get_label() == {"isun": "iSUN (OOD)", "svhn": "SVHN (OOD)"}[panel.ood_name]
        assert axes.get_xlim() == (0, 1) and axes.get_ylim()[0] == 0
    for left, right in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert left.get_ylim() == right.get_ylim()
    assert legend_of(figure) == ("Source: ours", ["CIFAR-100 (ID)", "iSUN (OOD)", "SVHN (OOD)"])
    assert {figure.get_supxlabel(), figure.get_supylabel()} == {"Confidence (higher: ID)", "Density"}


def test_a_missing_panel_leaves_a_gap_and_the_one_above_keeps_its_axis() -> None:
    figure = figures.densities([panel for panel in panels() if (panel.row, panel.column) != (3, 1)])
    assert [axes.get_visible() for axes in figure.axes] == [True] * 7 + [False]
    below = [axes.xaxis.get_major_ticks()[0].label1.get_visible() for axes in figure.axes[:7]]
    assert below == [False] * 5 + [True, True]


def test_curves_of_the_paper_are_drawn_as_printed() -> None:
    figure = drawn("curves")
    grid = np.array(figure.axes).reshape(4, 3)
    assert [axes.get_title() for axes in grid[0]] == ["AUROC (%) ↑", "AUPR (%) ↑", "FPR95 (%) ↓"]
    assert [axes.get_ylabel() for axes in grid[:, 0]] == ["CIFAR-10", "CIFAR-100", "SVHN", "ImageNet-32"]
    assert {axes.get_xlabel() for axes in grid[3]} == {"Margin $m$"}
    chosen = {(m.id, m.net): m.margin for m in numbers.margins()}
    ids, nets = ["cifar10", "cifar100", "svhn", "imagenet32"], {"allconv": "AllConv", "wrn-40-2": "WRN-40-2"}
    for curve in numbers.margin_curves():
        axes = grid[ids.index(curve.id), ["auroc", "aupr", "fpr95"].index(curve.metric)]
        (line,) = [c.lines[0] for c in axes.containers if c.get_label() == nets[curve.net]]
        assert (tuple(line.get_xdata()), tuple(line.get_ydata())) == (curve.margins, curve.values)
        margin = chosen[curve.id, curve.net]
        stars = [s for s in axes.lines if s.get_marker() == "*" and s.get_markerfacecolor() == line.get_color()]
        value = dict(zip(curve.margins, curve.values, strict=True))[margin]
        assert [(s.get_xdata()[0], s.get_ydata()[0]) for s in stars] == [(margin, value)]
    assert legend_of(figure) == ("Source: paper", ["AllConv", "WRN-40-2", "chosen margin"])


def test_stars_at_the_same_place_are_both_seen() -> None:
    axes = drawn("curves").axes[8]  # SVHN, FPR95: both networks reach 0 at 0.8
    below, above = sorted((s for s in axes.lines if s.get_marker() == "*"), key=lambda s: s.get_zorder())
    assert (below.get_xydata() == above.get_xydata()).all()
    assert below.get_markersize() > above.get_markersize()


def test_a_sweep_is_one_row_in_the_order_of_the_tables_with_its_errors() -> None:
    figure = drawn("sweep")
    assert [axes.get_title() for axes in figure.axes] == ["AUROC (%) ↑", "AUPR (%) ↑", "FPR95 (%) ↓"]
    assert figure.axes[0].get_ylabel() == "digits"
    (bars,) = figure.axes[2].containers[0].lines[2]
    ends = [tuple(segment[:, 1]) for segment in bars.get_segments()]
    assert ends == [(19.5, 20.5), (11.75, 12.25), (13.875, 14.125)]


def test_a_sweep_without_choice_marks_none() -> None:
    figure = figures.margin_curves([replace(curve, chosen=None, errors=None) for curve in sweep()])
    assert legend_of(figure)[1] == ["wrn-10-1"]
    assert not [line for axes in figure.axes for line in axes.lines if line.get_marker() == "*"]


def test_sources_are_never_joined() -> None:
    paper = [curve for curve in plots.paper_curves() if curve.id == "cifar10"]
    mine = [replace(curve, values=[v - 1 for v in curve.values], source="ours") for curve in paper]
    figure: Any = figures.margin_curves([*paper, *mine])
    title, labels = legend_of(figure)
    assert title == ""
    both = {f"{net} ({source})" for net in ("AllConv", "WRN-40-2") for source in ("paper", "ours")}
    assert set(labels) == both | {"chosen margin"}
    lines = {c.get_label(): c.lines[0] for c in figure.axes[0].containers}
    assert set(lines) == both
    for net in ("AllConv", "WRN-40-2"):
        difference = lines[f"{net} (paper)"].get_ydata() - lines[f"{net} (ours)"].get_ydata()
        assert list(difference) == pytest.approx([1] * 10)
    assert len({line.get_linestyle() + str(line._dash_pattern) for line in lines.values()}) == 4

    group = BoxGroup("macs", "cifar100", "isun", [0.5, 1.0], [0.1, 0.2])
    (axes,) = figures.confidence_boxes([*plots.paper_boxes(), group]).axes
    assert [label.get_text() for label in axes.get_xticklabels()][2:] == ["MaCS\n(paper)", "MaCS\n(ours)"]

    two = [replace(panel, source=source) for panel, source in zip(panels(), ["ours", "theirs"], strict=False)]
    assert [axes.get_title() for axes in figures.densities(two).axes] == [
        "MaCS, AllConv (ours)",
        "OE, AllConv (theirs)",
    ]


def test_bars_of_the_paper_are_drawn_as_printed_and_a_cut_axis_says_so() -> None:
    figure = drawn("bars")
    assert [axes.get_ylabel() for axes in figure.axes] == ["AUROC (%) ↑", "AUPR (%) ↑", "FPR95 (%) ↓"]
    for axes, metric, start in zip(figure.axes, ("auroc", "aupr", "fpr95"), (80, 80, 0), strict=True):
        found = sorted(axes.patches, key=lambda patch: patch.get_x())
        printed = {(b.id, b.bounded): b.value for b in numbers.bars() if b.metric == metric}
        order = [(id, bounded) for id in ("cifar10", "cifar100", "svhn", "imagenet32") for bounded in (True, False)]
        assert [p.get_y() + p.get_height() for p in found] == pytest.approx([printed[key] for key in order], rel=1e-12)
        assert {p.get_y() for p in found} == {start} == {axes.get_ylim()[0]}
        assert sorted(t.get_text() for t in axes.texts) == sorted(f"{value:.2f}" for value in printed.values())
        assert len(axes.lines) == (start > 0)  # the strokes
        assert len({(to_hex(p.get_facecolor()), p.get_hatch()) for p in found}) == 2
        assert max(axes.get_yticks()) <= 100
    assert [label.get_text() for label in axes.get_xticklabels()] == ["CIFAR-10", "CIFAR-100", "SVHN", "ImageNet-32"]
    assert legend_of(figure) == ("Source: paper", ["MaCS, m = 0.5", "+MCD, without margin"])


def test_bars_of_two_sources_stand_side_by_side() -> None:
    figure = drawn("bars of two sources")
    assert set(legend_of(figure)[1]) == {
        f"{variant} ({source})" for variant in ("MaCS, m = 0.5", "+MCD, without margin") for source in ("paper", "ours")
    }
    for axes in figure.axes:
        places = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches)
        assert len(places) == 16
        assert all(end < start for (_, end), (start, _) in pairwise(places))


@pytest.mark.parametrize(("value", "error", "start"), [(49.0, None, 0), (85.0, 3.0, 70), (0.0, float("nan"), 0)])
def test_one_bar_alone(value: float, error: float | None, start: int) -> None:
    figure: Any = figures.bound_bars([BoundBar("digits", "auroc", "margin", value, error)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (bar,) = axes.patches
    assert axes.get_ylim()[0] == bar.get_y() == start
    assert bar.get_y() + bar.get_height() == value


def test_a_name_too_long_for_the_figure_keeps_its_legend() -> None:
    bars = [replace(bar, source=source * 60) for source in "ab" for bar in plots.paper_bars()]
    assert len(legend_of(figures.bound_bars(bars))[1]) == 4


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: figures.confidence_boxes([]), "no group of boxes to draw"),
        (lambda: figures.densities([]), "no panel"),
        (lambda: figures.margin_curves([]), "no curve"),
        (lambda: figures.bound_bars([]), "no bar"),
        (lambda: figures.margin_curves([*sweep(), *sweep()]), "given twice"),
        (lambda: figures.margin_curves([replace(sweep()[0], metric="fpr")]), "did you mean 'fpr95'"),
        (
            lambda: figures.margin_curves([replace(sweep()[0], chosen=0.4)]),
            "fpr95 of wrn-10-1 on digits .*no margin 0.4",
        ),
        (lambda: figures.margin_curves([replace(sweep()[0], values=[1.0])]), "as many values and errors as margins"),
        (lambda: figures.margin_curves([replace(sweep()[0], errors=[1.0])]), "as many values and errors as margins"),
        (lambda: figures.bound_bars([BoundBar("digits", "auroc", "margin", float("nan"))]), "auroc on digits is nan"),
        (lambda: figures.densities([replace(panels()[0], conf_out=[3.0])]), "between 0 and 1"),
        (lambda: figures.densities([replace(panels()[0], conf_in=[])]), "MaCS, AllConv on CIFAR-100 .ID. are missing"),
        (lambda: figures.confidence_boxes([BoxGroup("oe", "a", "b", [0.5], [np.nan])]), "oe on b .OOD. are missing"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(draw: Callable[..., Any], words: str) -> None:
    with pytest.raises(MacsError, match=words):
        draw()


def test_files_are_valid_and_their_text_is_text(tmp_path: Path) -> None:
    stem = tmp_path / "new" / "margin-0.5"
    paths = figures.save(drawn("sweep"), stem)
    assert [path.name for path in paths] == ["margin-0.5.svg", "margin-0.5.pdf", "margin-0.5.png"]
    assert sorted(stem.parent.iterdir()) == sorted(paths)
    svg, pdf, png = paths
    root = ElementTree.parse(svg).getroot()
    assert root.tag == f"{SVG}svg"
    words = {"".join(node.itertext()).strip() for node in root.iter(f"{SVG}text")}
    assert {"AUROC (%) ↑", "digits", "wrn-10-1", "Source: ours"} <= words
    assert not root.findall(f".//{SVG}image")
    assert pdf.read_bytes().startswith(b"%PDF-") and pdf.read_bytes().rstrip().endswith(b"%%EOF")
    assert b"/Subtype /Image" not in pdf.read_bytes()
    with Image.open(png) as image:
        image.load()
        assert image.size == (7.16 * 300, round(1.9 * 300))
    for path in paths:
        assert b"CreationDate" not in path.read_bytes() and b"dc:date" not in path.read_bytes()


@pytest.mark.parametrize("kind", ["densities of one row", "bars"])
def test_the_same_numbers_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    seen = drawn(kind)
    seen.draw_without_rendering()  # outside our style, as a notebook would
    figures.save(seen, tmp_path / "a")
    pairs = zip(figures.save(seen, tmp_path / "a"), figures.save(DRAWN[kind](), tmp_path / "b"), strict=True)
    assert all(first.read_bytes() == second.read_bytes() for first, second in pairs)


def test_the_users_settings_are_put_back() -> None:
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path"}):
        before = dict(matplotlib.rcParams)
        figure = DRAWN["sweep"]()
        with pytest.raises(MacsError):
            figures.margin_curves([])
        assert dict(matplotlib.rcParams) == before
    assert figure.axes[0].title.get_fontsize() == 8


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("matplotlib", "matplotlib.style"):
        monkeypatch.setitem(sys.modules, module, None)
    for draw in DRAWN.values():
        with pytest.raises(MacsError, match=r"pip install 'macs-ood\[report\]'"):
            draw()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MacsError, match="figure.svg"):
        figures.save(drawn("bars"), tmp_path / "file" / "figure")


def test_series_differ_in_grey_as_well() -> None:
    """Fills by lightness or hatch, lines by dashes and markers."""
    for axes in drawn("bars of two sources").axes:
        assert len({patch.get_hatch() for patch in axes.patches}) == 4
    lines = [c.lines[0] for c in drawn("curves").axes[0].containers]
    assert len({line.get_marker() for line in lines}) == len({str(line._dash_pattern) for line in lines}) == 2
