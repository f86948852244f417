"""Public benchmarks: which images, groups and metrics a published table uses, so that our numbers can stand beside it.

A file of this package registers the benchmarks of one publication. Their images are those of the publication's own
lists, and its published values are never mixed with ours: they have columns of their own.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from macs import metrics
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.files import output_file, write_text
from macs.core.registry import Registry
from macs.core.text import csv_cell
from macs.data import ImageSet, Preparation
from macs.data.image_files import base_of
from macs.data.loading import data_root
from macs.evaluation.results import Evaluation, Printable, Ranking

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import nn

    from macs.scores import Score
    from macs.training.runs import TrainedNetwork


LEADERBOARD_COLUMNS = (
    *("Training", "Postprocessor", "Near-OOD_AUROC", "Far-OOD_AUROC", "ID_Accuracy"),
    *("Outlier_Data", "Arch", "Additional_Description"),
)


def csv_path(path: str | Path) -> Path:
    """Return a path to write a table to, checked before the work."""
    if Path(path).suffix != ".csv":
        raise MacsError(f"Cannot write the leaderboard's columns to {path}: the name must end in .csv.")
    return output_file(path)


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


@dataclass(frozen=True)
class Benchmark:
    """ID images, OOD sets in groups, and what was published for them."""

    name: str
    id: str  # name of the ID images in the lists
    classes: int
    groups: Mapping[str, tuple[str, ...]]  # group -> its OOD sets
    validation: str  # OOD images to choose settings with
    outliers: str  # OOD images to train with; empty if there are none
    normalisation: str  # of the networks that were published with it
    preparation: Preparation
    lists: str  # the folder of the lists, each called SPLIT_SET.txt, below the data root
    pictures: tuple[str, ...]  # folders below the data root that the paths in the lists may start from
    metrics: tuple[str, ...]  # columns of its tables
    official: Mapping[str, int]  # images of a list, by its name SPLIT_SET, where the number is known
    published: Mapping[str, Mapping[str, float]]  # method -> group -> published AUROC in percent, in published order
    origin: str  # what the published values are, as a sentence
    names: Mapping[str, str] = field(default_factory=dict)  # our score -> its published name, where they differ

    def published_name(self, score: str) -> str:
        """Return the published name of one of our scores; the score's own name if nothing was published for it."""
        by_letters = {method.lower(): method for method in self.published}
        return self.names.get(score) or by_letters.get(score.lower(), score)

    def load(
        self, split: str, name: str = "", root: str | Path | None = None, preparation: Preparation | None = None
    ) -> ImageSet:
        """The images of a list, by its split and set, for example ("test", "svhn"); without a name the ID images."""
        folder, name = data_root(root), name or self.id
        file = folder / self.lists / f"{split}_{name}.txt"
        if not file.exists():
            raise MacsError(
                f"{self.name} needs the list {file}; name the folder that holds {self.lists} with --data or $MACS_DATA."
            )
        known = name == self.id
        return ImageSet.from_list(
            file,
            root=base_of(file, [folder / name for name in self.pictures]),
            classes=tuple(map(str, range(self.classes))) if known else (),
            labelled=known,
            name=name,
            preparation=preparation or self.preparation,
        )

    def sets(
        self, root: str | Path | None = None, preparation: Preparation | None = None
    ) -> tuple[ImageSet, dict[str, ImageSet]]:
        """The ID test images and the OOD test sets by name; `root` is the folder of the lists and the pictures."""
        test = self.load("test", self.id, root, preparation)
        ood = {name: self.load("test", name, root, preparation) for group in self.groups.values() for name in group}
        self.warn_of_counts({self.id: test, **ood})
        return test, ood

    def suited(self, trained: "TrainedNetwork") -> "TrainedNetwork":
        """A network without a run of ours, prepared and normalised as those that were published with the benchmark."""
        normalisation = trained.normalisation or self.normalisation
        return replace(trained, preparation=self.preparation, normalisation=normalisation)

    def evaluate(
        self,
        net: "nn.Module",
        scores: "Mapping[str, Score] | Sequence[str | Score]" = ("msp",),
        root: str | Path | None = None,
        *,
        preparation: Preparation | None = None,
        **options: Any,
    ) -> "BenchmarkResult":
        """Measure a network on all images of all sets; `options` go to `evaluate_scores`."""
        from macs.evaluation.networks import evaluate_scores

        test, ood = self.sets(root, preparation)
        train = partial(self.load, "train", self.id, root, preparation)
        return BenchmarkResult(self, evaluate_scores(net, test, ood, scores, train=train, **options))

    def warn_of_counts(self, sets: Mapping[str, ImageSet]) -> None:
        """Warn of lists without the published number of images: their results cannot be compared."""
        official = {name: self.official.get(f"test_{name}", len(images)) for name, images in sets.items()}
        differ = [f"{name} ({len(sets[name]):,} of {n:,})" for name, n in official.items() if len(sets[name]) != n]
        if differ:
            warn(
                f"Some lists of {self.name} do not have the published number of images, so these results cannot be "
                f"compared with the published ones: {', '.join(differ)}."
            )


@dataclass(frozen=True)
class BenchmarkResult(Printable):
    """A network on a benchmark, by one or more scores; print it for tables, `as_dict()` for everything."""

    benchmark: Benchmark
    ranking: Ranking

    def mean(self, evaluation: Evaluation, group: str, metric: str) -> float:
        """The unweighted mean over the sets of a group."""
        names = self.benchmark.groups[group]
        return float(np.mean([result.full[metric] for result in evaluation.sets if result.name in names]))

    def as_dict(self) -> dict[str, Any]:
        """All numbers as shares, score by score, and the published ones separately."""
        benchmark, first = self.benchmark, self.ranking.evaluations[0]
        names = list(first.sets[0].full)
        return {
            "benchmark": benchmark.name,
            "conventions": {
                "unit": "shares between 0 and 1",
                "confidence": "higher means ID",
                "groups": "unweighted means over the sets of a group, on all images",
                **{name: metrics.get(name).convention for name in names},
                "fpr_rule": f"{first.protocol.fpr_rule} threshold",
            },
            "id": {"name": first.id, "images": first.images, "accuracy": first.accuracy},
            "scores": {
                evaluation.score: {
                    "ood": {result.name: {"images": result.images, **result.full} for result in evaluation.sets},
                    "groups": {
                        group: {name: self.mean(evaluation, group, name) for name in names}
                        for group in benchmark.groups
                    },
                }
                for evaluation in self.ranking.evaluations
            },
            "left_out": self.ranking.left_out,
            "published": {
                "origin": benchmark.origin,
                "auroc": {
                    method: {group: round(value / 100, 6) for group, value in values.items()}
                    for method, values in benchmark.published.items()
                },
            },
        }

    @property
    def in_order(self) -> list[Evaluation]:
        """The evaluations in the published order of their scores, then those of scores that were not published."""
        order, names = list(self.benchmark.published), self.benchmark.published_name

        def place(evaluation: Evaluation) -> int:
            name = names(evaluation.score)
            return order.index(name) if name in order else len(order)

        return sorted(self.ranking.evaluations, key=place)

    def write_csv(
        self, path: str | Path, *, training: str, arch: str, outliers: bool = False, description: str = ""
    ) -> None:
        """Write one row per score in the columns of OpenOOD's leaderboard.

        Parameters
        ----------
        path
            File to write, ending in .csv.
        training
            What the network was trained with, as the leaderboard says it: "CrossEntropy", "OE".
        arch
            Name of the network.
        outliers
            Whether it was trained with outliers.
        description
            Anything else about it, such as "100 epochs".
        """
        text = StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(LEADERBOARD_COLUMNS)
        for evaluation in self.in_order:
            areas = [percent(self.mean(evaluation, group, "auroc")) for group in ("near", "far")]
            row = [training, self.benchmark.published_name(evaluation.score), *areas, percent(evaluation.accuracy)]
            writer.writerow(map(csv_cell, [*row, "Yes" if outliers else "No", arch, description]))
        write_text(csv_path(path), text.getvalue())

    def table(self, metrics: Sequence[str] | None = None) -> "RenderableType":
        """All sets and groups, by score in the published order, and the published values beside ours."""
        from macs.evaluation.tables import benchmark_tables

        return benchmark_tables(self, metrics)


_registry: Registry[Benchmark] = Registry("macs.evaluation.benchmarks", "benchmark")


def register(benchmark: Benchmark) -> Benchmark:
    """Add a benchmark under its name."""
    return _registry(benchmark.name)(benchmark)


def available() -> list[str]:
    """The names of all benchmarks."""
    return _registry.available()


def get(name: str) -> Benchmark:
    """The benchmark of that name, or the one that module:name points at."""
    entry = _registry[name]
    if not isinstance(entry, Benchmark):
        raise MacsError(f"{name} is not a benchmark; make it a macs.evaluation.benchmarks.Benchmark.")
    return entry
