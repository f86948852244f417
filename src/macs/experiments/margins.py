"""Algorithm 1 of the MaCS paper: fine-tune with every margin and keep the best.

Every margin starts from the same pretrained weights and has the same budget; only the margin and the seed differ. The
best margin has the lowest FPR95; ties are broken by the highest AUROC, then by the smallest margin. This is the rule
behind Table 5 of the paper. We apply it to held-out ID images and held-out outliers. Applied to the test sets it gives
the paper's MaCS*, which is optimistic about new data and is called test-chosen wherever it is shown.

The margin only decides when the push on the confidences stops. Margins that MCD never reaches, or exceeds from the
start, are the same objective: training with them gives the same weights, bit for bit, and `plateaus` names them. On
energies and log-odds the push also depends on the margin, so that only margins exceeded from the start are the same.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.console import Group
from rich.table import Table

from macs.core.console import tell
from macs.core.errors import MacsError
from macs.core.files import write_text
from macs.data import ImageSet, load
from macs.data.compatibility import same_classes
from macs.data.loading import Place
from macs.data.preparation import Preparation
from macs.experiments.cells import Cell, Engine, Examination, Result, SerialEngine
from macs.metrics import FprRule, deviation
from macs.training.recipe import Recipe
from macs.training.sources import Training

if TYPE_CHECKING:
    from torch import nn

MARGINS = tuple(step / 10 for step in range(10))
ENERGY_MARGINS = (1.0, 2.0, 5.0, 10.0, 20.0)  # on energies and log-odds, which have no bound
METRICS = ("auroc", "aupr", "fpr95", "accuracy")
ChosenOn = Literal["validation", "test"]


@dataclass(frozen=True)
class Point:
    """One margin of the curve, with one result per seed."""

    margin: float
    results: tuple[Result, ...]

    def values(self, metric: str, on: ChosenOn) -> list[float]:
        """Return the metric as a share, averaged over OOD sets, one value per seed."""
        evaluations = (result.of(on) for result in self.results)
        return [e.accuracy if metric == "accuracy" else e.mean(metric) for e in evaluations]

    def mean(self, metric: str, on: ChosenOn) -> float:
        return float(np.mean(self.values(metric, on)))

    def spread(self, metric: str, on: ChosenOn) -> float:
        """Standard deviation over seeds; nan for a single one."""
        return deviation(self.values(metric, on))

    @property
    def mcd(self) -> float:
        """Mean confidence difference on the training images in the last epoch, averaged over seeds."""
        return float(np.mean([result.mcd[-1] for result in self.results]))


@dataclass(frozen=True)
class Sweep:
    """The curve over margins, the margin chosen from it, and how; print it for a table."""

    id: str
    net: str
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    chosen: float
    chosen_by: ChosenOn
    folder: Path
    on: str = "confidence"  # what the margin is put on

    @property
    def measured_on(self) -> tuple[ChosenOn, ...]:
        return ("validation",) if self.points[0].results[0].test is None else ("validation", "test")

    @property
    def notes(self) -> list[str]:
        """What a reader of the curve needs to know."""
        lowest = "the lowest share of ID lost at 95% of OOD caught"
        rule = f"The margin {self.chosen:g} has {lowest} (then the highest AUROC, then the smallest margin)"
        where = {
            "validation": "on held-out ID images and held-out outliers.",
            "test": "on the test sets (the paper's MaCS*): it is test-chosen, so do not compare it with other methods.",
        }
        criteria = {(p.mean("fpr95", self.chosen_by), p.mean("auroc", self.chosen_by)) for p in self.points}
        tie = ["All margins are equal by this rule, so it could not tell them apart."] if len(criteria) == 1 else []
        return [f"{rule} {where[self.chosen_by]}", *tie, *plateaus(self.points, self.seeds, self.on)]

    def as_dict(self) -> dict[str, Any]:
        """Return all numbers, per seed, as shares between 0 and 1."""
        return {
            "id": self.id,
            "net": self.net,
            "seeds": list(self.seeds),
            "chosen": self.chosen,
            "chosen_by": self.chosen_by,
            "on": self.on,
            "notes": self.notes,
            "curve": [
                {
                    "margin": point.margin,
                    "mcd": point.mcd,
                    "weights": [result.weights for result in point.results],
                    **{on: {metric: point.values(metric, on) for metric in METRICS} for on in self.measured_on},
                }
                for point in self.points
            ],
        }

    def as_csv(self) -> str:
        """Return one line per margin and seed."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        measured = [(on, metric) for on in self.measured_on for metric in METRICS]
        writer.writerow(["margin", "seed", "mcd", "weights", *(f"{on}_{metric}" for on, metric in measured)])
        for point in self.points:
            for index, (seed, result) in enumerate(zip(self.seeds, point.results, strict=True)):
                values = [point.values(metric, on)[index] for on, metric in measured]
                writer.writerow([point.margin, seed, result.mcd[-1], result.weights, *values])
        return text.getvalue()

    def write(self) -> list[Path]:
        """Write sweep.json, sweep.csv and, where matplotlib is installed, a plot of the curve; return the files."""
        files = {"sweep.json": json.dumps(self.as_dict(), indent=2), "sweep.csv": self.as_csv()}
        for name, text in files.items():
            write_text(self.folder / name, text)
        return [*(self.folder / name for name in files), *self._plot()]

    def _plot(self) -> list[Path]:
        from macs import figures

        curves = [
            figures.MarginCurve(
                id=self.id,
                net=self.net,
                metric=metric,
                margins=[point.margin for point in self.points],
                values=[100 * point.mean(metric, on) for point in self.points],
                errors=[100 * point.spread(metric, on) for point in self.points] if len(self.seeds) > 1 else None,
                chosen=self.chosen,
                source=f"{on} images",
            )
            for on in self.measured_on
            for metric in ("auroc", "aupr", "fpr95")
        ]
        try:
            return figures.save(figures.margin_curves(curves), self.folder / "curve")
        except MacsError as error:  # a missing plot must not spoil hours of training
            tell(f"No plot: {error}")
            return []

    def __rich__(self) -> Any:
        spread = f", mean ± standard deviation over {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        table = Table(title=f"Margins of {self.net} on {self.id}, in %{spread}", title_justify="left")
        table.add_column(f"margin\n← {self.chosen_by}-chosen", no_wrap=True)
        titles = {"fpr95": "ID lost at\n95% of OOD\ncaught ↓", "auroc": "AUROC ↑", "accuracy": "accuracy ↑"}
        for on in self.measured_on:
            for title in titles.values():
                table.add_column(f"{on}\n{title}", justify="right")
        table.add_column("MCD\nreached", justify="right")
        for point in self.points:
            cells = [self._cell(point, metric, on) for on in self.measured_on for metric in titles]
            mark = " ←" if point.margin == self.chosen else ""
            table.add_row(f"{point.margin:g}{mark}", *cells, f"{point.mcd:.3f}")
        return Group(table, *self.notes)

    def _cell(self, point: Point, metric: str, on: ChosenOn) -> str:
        spread = point.spread(metric, on)
        text = f"{100 * point.mean(metric, on):.2f}"
        return text if math.isnan(spread) else f"{text}±{100 * spread:.2f}"


def sweep(
    net: "nn.Module",
    train: ImageSet,
    outliers: ImageSet,
    *,
    validation: tuple[ImageSet, ImageSet],
    run: str | Path,
    test: ImageSet | None = None,
    ood: Mapping[str, ImageSet] | None = None,
    margins: Sequence[float] | None = None,
    seeds: Sequence[int] = (0,),
    method: str = "macs",
    recipe: Recipe | None = None,
    choose: ChosenOn = "validation",
    fpr_rule: FprRule = "first",
    progress: bool = True,
    engine: Engine | None = None,
) -> Sweep:
    """Fine-tune copies of a pretrained network with every margin, and choose a margin. The network does not change.

    Without `margins`, those of `usual_margins` are tried. `validation` holds ID images and outliers that are not in
    `train` and `outliers`; if the recipe keeps the best epoch of a training, that is chosen on them too.

    Every margin and seed is a cell below `run`: the same call continues where an interrupted one stopped, and computes
    nothing twice. The `engine` trains the cells; by default, one after another in this process.
    """
    from macs import methods, nets

    if choose == "test" and (test is None or not ood):
        raise MacsError("To choose the margin on test images, give the ID test images and at least one OOD set.")
    recipe = recipe or Recipe()
    margins = usual_margins(recipe) if margins is None else margins
    cells = []
    for cell_recipe in check_grid(recipe, margins, seeds):
        name = f"{method}-m{cell_recipe.options['margin']:g}-seed{cell_recipe.seed}".replace(":", ".")
        built = methods.build(method, cell_recipe.options)
        measured_on = validation if cell_recipe.keep == "best" else ()
        training = Training(net, train, outliers, built, cell_recipe, *measured_on)
        cells.append(Cell(Path(run), name, training.spec))
        train, outliers = training.train, training.outliers or outliers  # prepared once for all cells
    engine = engine or SerialEngine(progress=progress)
    examination = Examination(*validation, test, ood or {})
    finished = engine.run(_announced(cells, progress), examination, training.held, fpr_rule)
    by_key = {done.cell.key: done.value() for done in finished}
    results = [by_key[cell.key] for cell in cells]
    points = tuple(
        Point(margin, tuple(results[index * len(seeds) : (index + 1) * len(seeds)]))
        for index, margin in enumerate(margins)
    )
    chosen = chosen_margin(points, choose)
    on = str(cells[0].spec.recipe.options.get("on", "confidence"))
    return Sweep(train.whole_name, nets.name_of(net), tuple(seeds), points, chosen, choose, Path(run), on)


def _announced(cells: Sequence[Cell], progress: bool) -> Iterator[Cell]:
    """Yield the cells, each announced as it is taken."""
    for cell in cells:
        recipe = cell.spec.recipe
        tell(f"margin {recipe.options['margin']:g}, seed {recipe.seed}{' (done before)' * cell.finished}", progress)
        for other in cell.others():
            tell(f"A cell in {cell.root / cell.name} is kept but not used: {other}.", progress)
        yield cell


def usual_margins(recipe: Recipe) -> Sequence[float]:
    """Return the margins to try if none are given: the paper's, or those for energies and log-odds."""
    return MARGINS if recipe.options.get("on", "confidence") == "confidence" else ENERGY_MARGINS


def check_grid(base: Recipe, margins: Sequence[float], seeds: Sequence[int]) -> list[Recipe]:
    """Return one recipe per margin and seed; raise if they cannot be swept."""
    if not margins or not seeds or len(set(margins)) < len(margins) or len(set(seeds)) < len(seeds):
        raise MacsError("A sweep needs at least one margin and one seed, and none of them twice.")
    if base.options.get("variant") == "unbounded":
        raise MacsError("The variant 'unbounded' has no margin to choose; sweep 'margin' or 'hinge'.")
    options = {name: value for name, value in base.options.items() if name != "margin"}
    return [replace(base, options=options, margin=margin, seed=seed) for margin in margins for seed in seeds]


def chosen_margin(points: Sequence[Point], on: ChosenOn) -> float:
    """Return the best margin by the means over seeds."""
    return best_margin(
        [point.margin for point in points],
        [point.mean("fpr95", on) for point in points],
        [point.mean("auroc", on) for point in points],
    )


def best_margin(margins: Sequence[float], fpr95: Sequence[float], auroc: Sequence[float]) -> float:
    """Return the margin with the lowest FPR95; ties are broken by the highest AUROC, then by the smallest margin."""
    rank = [(fpr, -area, margin) for margin, fpr, area in zip(margins, fpr95, auroc, strict=True)]
    return min(rank)[2]


def plateaus(points: Sequence[Point], seeds: Sequence[int], on: str = "confidence") -> list[str]:
    """Return one sentence per group of margins whose networks are the same, bit for bit."""
    sentences: dict[str, list[int]] = {}  # each with the seeds for which it holds
    for index, seed in enumerate(seeds):
        groups: dict[str, list[Point]] = {}
        for point in points:
            groups.setdefault(point.results[index].weights, []).append(point)
        for group in (group for group in groups.values() if len(group) > 1):
            above = all(max(point.margin for point in group) <= mcd for mcd in group[0].results[index].mcd)
            why = "MCD was above them from the start" if above else "MCD never reached them"
            if on != "confidence":
                why = "the gaps were above them from the start"
            listed = ", ".join(f"{point.margin:g}" for point in group)
            sentence = f"The margins {listed} are one objective: {why}, and their networks are the same bit for bit"
            sentences.setdefault(sentence, []).append(seed)
    return [f"{sentence} (seeds {', '.join(map(str, its_seeds))})." for sentence, its_seeds in sentences.items()]


def held_out(
    spec: str,
    first: float | int,
    root: str | Path | None = None,
    size: int | None = None,
    seed: int = 0,
    elsewhere: str | None = None,
    labelled: bool = True,
    preparation: Preparation | None = None,
) -> tuple[ImageSet, ImageSet]:
    """Return training images, and held-out images to choose a margin by.

    The held-out images are the set that `elsewhere` names; without it, the validation split of the dataset or folder;
    without one, `first` training images (a number, or a share of them), drawn at random and removed from the training.
    """
    read = partial(load, root=root, size=size, labelled=labelled, preparation=preparation)
    train = read(spec, "train")
    if elsewhere is not None:
        return train, read(elsewhere, "val" if "val" in Place(elsewhere).splits else "train")
    if "val" in Place(spec).splits:
        validation = read(spec, "val")
        same_classes(validation, train.classes, "its training images have")
        return train, validation
    held, remaining = train.split(first, seed)
    return remaining, held
