"""What all figures share: sizes, names, colours, legends and files.

The colours are Okabe and Ito's, which colour-blind readers can tell apart; line styles, markers and hatches repeat the
distinction for print in grey. matplotlib is imported when the first figure is drawn.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

COLUMN, PAGE = 3.5, 7.16  # inches: a column and the text width of the IEEE's two-column format
NAMES = {  # how papers write our names; other names are left as they are
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet32": "ImageNet-32",
    "svhn": "SVHN",
    "isun": "iSUN",
    "lsun-c": "LSUN-C",
    "places365": "Places365",
    "textures": "Textures",
    "wrn-40-2": "WRN-40-2",
    "allconv": "AllConv",
    "resnet-18": "ResNet-18",
    "densenet-121": "DenseNet-121",
    "msp": "MSP",
    "oe": "OE",
    "energy": "Energy",
    "mixoe": "MixOE",
    "divoe": "DivOE",
    "macs": "MaCS",
    "macs*": "MaCS*",
}
STYLE = {
    "figure.dpi": 300,
    "savefig.dpi": 300,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "legend.frameon": False,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "grid.color": "0.88",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",  # text stays text, to be searched and edited
    "pdf.fonttype": 42,
    "svg.hashsalt": "macs",  # otherwise the ids in the file would differ each time
}


class Look(NamedTuple):
    """The four ways in which one series differs from the others."""

    colour: str
    line: Any
    marker: str
    hatch: str


LOOKS = (
    Look("#0072B2", "-", "o", ""),
    Look("#E69F00", (0, (4, 1.2)), "s", "/////"),
    Look("#009E73", (0, (4, 1, 1, 1)), "^", "\\\\\\\\\\"),
    Look("#CC79A7", (0, (1, 1)), "D", "xxxxx"),
    Look("#D55E00", (0, (6, 1, 1, 1, 1, 1)), "v", "-----"),
    Look("#000000", (0, (8, 2)), "P", "|||||"),
)


def look(number: int) -> Look:
    return LOOKS[number % len(LOOKS)]


def name(name: str) -> str:
    return NAMES.get(name, name)


def short(text: str) -> str:
    """A label that fits beside a panel; a long one, such as a path, is cut to its end."""
    return text if len(text) <= 16 else f"…{text[-15:]}"


def with_source(text: str, source: str, sources: list[str], join: str = " ") -> str:
    """The text, with its source if the figure has several; a single source is named by `finish`."""
    return text if len(sources) == 1 else f"{text}{join}({source})"


@contextmanager
def style() -> Iterator[None]:
    """Our style instead of the user's matplotlibrc, which is restored afterwards; also a decorator."""
    try:
        import matplotlib.style
    except ModuleNotFoundError:
        raise MacsError("Figures need matplotlib, which is not installed: pip install 'macs-ood[report]'.") from None
    with matplotlib.style.context(["default", STYLE]):
        yield


def grid(rows: int, columns: int, width: float, height: float, **shared: Any) -> tuple["Figure", NDArray[Any]]:
    """A figure and its axes, made without pyplot, which would keep the figure open."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def finish(figure: "Figure", handles: dict[str, Any], sources: list[str]) -> "Figure":
    """The figure with a legend above its panels, where it hides nothing, in as few rows as the width allows."""
    title = f"Source: {sources[0]}" if len(sources) == 1 else None
    for rows in range(1, len(handles) + 1):
        columns = -(-len(handles) // rows)
        legend = figure.legend(
            list(handles.values()), list(handles), loc="outside upper center", ncols=columns, title=title
        )
        if columns == 1 or legend.get_window_extent().width < 0.97 * figure.bbox.width:
            break
        legend.remove()
    # Otherwise ticks and layout would be computed again, with slightly different results, each time it is drawn.
    for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
        low, high = axis.get_view_interval()
        axis.set_ticks([tick for tick in axis.get_majorticklocs() if low <= tick <= high])
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


@style()
def save(figure: "Figure", stem: Path) -> list[Path]:
    """Write stem.svg, stem.pdf and stem.png, each whole or not at all; the same figure gives the same bytes."""
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    paths = []
    for kind, metadata in undated.items():
        path = stem.with_name(f"{stem.name}.{kind}")  # with_suffix would replace the ".5" of "margin-0.5"

        def write(temporary: Path, kind: str = kind, metadata: dict[str, Any] = metadata) -> None:
            figure.savefig(temporary, format=kind, metadata=metadata)

        write_atomically(path, write)
        paths.append(path)
    return paths


def distinct(items: Sequence[T], key: Callable[[T], Hashable], kind: str) -> dict[Hashable, T]:
    """The items by key: at least one, and none twice."""
    by_key: dict[Hashable, T] = {}
    for item in items:
        if key(item) in by_key:
            raise MacsError(f"The {kind} {key(item)} is given twice; leave one out.")
        by_key[key(item)] = item
    if not by_key:
        raise MacsError(f"There is no {kind} to draw; give at least one.")
    return by_key


def every(items: Sequence[Any], field: str) -> list[Any]:
    """The distinct values of the field, in the order of first appearance."""
    return list(dict.fromkeys(getattr(item, field) for item in items))
