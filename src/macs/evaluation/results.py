"""From confidences to results, for one score or for several, to print as tables or to save as JSON. It needs no torch.

There are two protocols:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs import metrics
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.text import html_table
from macs.data import ImageSet
from macs.data.spec import same_pixels
from macs.evaluation.histogram import Histogram
from macs.evaluation.protocol import Protocol, drawn_accuracies, drawn_metrics
from macs.metrics import OODMetrics, Reliability, RiskCoverage, mean_and_error, ood_metrics, risk_coverage

if TYPE_CHECKING:
    from rich.console import RenderableType


COVERAGES = (0.95, 0.9, 0.8, 0.5)  # shares of the ID images, the most confident ones, whose accuracy is given
CURVE = 100  # points of the curve of risk against coverage in JSON


@dataclass(frozen=True)
class SetResult:
    """One OOD set against the ID test set."""

    name: str
    images: int
    full: OODMetrics
    draws: list[OODMetrics]


class Printable:
    """Results that are shown as tables: by rich in a terminal, and as plain text by `print`."""

    def table(self, metrics: Sequence[str] | None = None) -> "RenderableType":
        """The tables, with columns for these metrics or for the default ones."""
        raise NotImplementedError(f"{type(self).__name__} does not define `table`")

    def __rich__(self) -> "RenderableType":
        return self.table()

    def __str__(self) -> str:
        from macs.evaluation.tables import plain_text

        return plain_text(self)


@dataclass(frozen=True)
class Evaluation(Printable):
    """The numbers of one network, as shares in [0, 1]; print it for a table, `as_dict()` for everything."""

    id: str
    images: int
    score: str
    protocol: Protocol
    accuracy: float
    draw_accuracies: list[float]
    sets: list[SetResult]
    selective: RiskCoverage | None = field(default=None, compare=False)  # of the predictions on the ID test images
    reliability: Reliability | None = field(default=None, compare=False)  # of their class probabilities
    histogram: Histogram | None = field(default=None, compare=False)  # of the confidences, which it does not hold

    @property
    def drawn(self) -> int:
        """The number of ID images in a draw."""
        return self.protocol.size(self.images)

    def mean(self, metric: str) -> float:
        """The mean over the OOD sets, on all images."""
        return float(np.mean([result.full[metric] for result in self.sets]))

    def draw_means(self, metric: str) -> list[float]:
        """The mean over the OOD sets in each draw."""
        per_set = [[draw[metric] for draw in result.draws] for result in self.sets]
        return [float(value) for value in np.mean(per_set, axis=0)]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, per draw, with their conventions in words."""
        accuracy, accuracy_error = mean_and_error(self.draw_accuracies)
        summaries = {metric: mean_and_error(self.draw_means(metric)) for metric in self.sets[0].full}
        return {
            "conventions": {"confidence": f"{self.score}; higher means ID", **conventions(self)},
            "protocol": asdict(self.protocol),
            "id": {"name": self.id, "images": self.images, "accuracy": self.accuracy},
            "selective": self._selective(),
            "probabilities": None if self.reliability is None else self.reliability.as_dict(),
            "ood": {
                result.name: {
                    "images": result.images,
                    "full": dict(result.full),
                    "draws": [dict(draw) for draw in result.draws],
                }
                for result in self.sets
            },
            "mean": {
                "full": {metric: self.mean(metric) for metric in summaries},
                "draws": {metric: {"mean": m, "error": e} for metric, (m, e) in summaries.items()},
                "accuracy": {"mean": accuracy, "error": accuracy_error, "draws": self.draw_accuracies},
            },
        }

    def _selective(self) -> dict[str, Any]:
        if self.selective is None:
            return {}
        kept = {f"{share:g}": self.selective.accuracy_at(share) for share in COVERAGES}
        curve = self.selective.at(CURVE)
        return {"aurc": self.selective.aurc, "accuracy_at_coverage": kept, "curve": curve}

    def _repr_html_(self) -> str:
        """The metrics on all images, one row per OOD set, as a notebook shows them."""
        columns = metrics.shown()
        rows = [
            (result.name, f"{result.images:,}", *(f"{100 * result.full[metric.name]:.2f}" for metric in columns))
            for result in self.sets
        ]
        if len(rows) > 1:
            rows.append(("mean", "", *(f"{100 * self.mean(metric.name):.2f}" for metric in columns)))
        caption = f"{self.id} ({self.images:,} images) against unknown images, by {self.score}, in percent"
        note = f"ID accuracy {100 * self.accuracy:.2f}. One trained network; another training seed gives other numbers."
        return html_table(["", "images", *(f"{m.label} {m.arrow}" for m in columns)], rows, caption, note)

    def table(self, metrics: Sequence[str] | None = None) -> "RenderableType":
        """Both protocols as tables of these metrics, or of the default ones."""
        from macs.evaluation.tables import evaluation_tables

        return evaluation_tables(self, metrics)


@dataclass(frozen=True)
class Ranking(Printable):
    """Several scores of one network, the best first by mean AUROC; print it for a table, `as_dict()` for everything.

    It compares scores on test sets: a score that is chosen by it must be measured on other sets.
    """

    evaluations: list[Evaluation]
    left_out: dict[str, str]  # score -> reason
    train: str  # name of the ID training images that scores were fitted to; empty if none was
    train_images: int
    fitted: list[str]  # the scores that were fitted to them
    held_out: str = ""  # the ID images that sums are standardised on, and some scores are fitted to; empty if none is
    held_out_images: int = 0
    standardised: list[str] = field(default_factory=list)  # the sums
    fitted_held_out: list[str] = field(default_factory=list)  # the single scores that were fitted to held-out images

    def __getitem__(self, score: str) -> Evaluation:
        return {evaluation.score: evaluation for evaluation in self.evaluations}[score]

    def as_dict(self) -> dict[str, Any]:
        """All numbers, score by score in the order of the ranking."""
        first = self.evaluations[0]
        results = {evaluation.score: evaluation.as_dict() for evaluation in self.evaluations}
        return {
            "conventions": {"confidence": "higher means ID", **conventions(first)},
            "protocol": asdict(first.protocol),
            "id": first.as_dict()["id"],
            "probabilities": first.as_dict()["probabilities"],
            "fitted": {"train": self.train, "images": self.train_images, "scores": self.fitted},
            "standardised": {"held_out": self.held_out, "images": self.held_out_images, "scores": self.standardised},
            "fitted_held_out": {
                "held_out": self.held_out,
                "images": self.held_out_images,
                "scores": self.fitted_held_out,
            },
            "scores": {
                name: {key: value[key] for key in ("ood", "mean", "selective")} for name, value in results.items()
            },
            "left_out": self.left_out,
        }

    def table(self, metrics: Sequence[str] | None = None) -> "RenderableType":
        """One row per score, with these metrics or the default ones."""
        from macs.evaluation.tables import ranking_table

        return ranking_table(self, metrics)


def conventions(evaluation: Evaluation) -> dict[str, str]:
    """The meaning of each number, in words."""
    return {
        "unit": "shares between 0 and 1",
        **{name: metrics.get(name).convention for name in evaluation.sets[0].full},
        "fpr_rule": f"{evaluation.protocol.fpr_rule} threshold",
        "error": "standard error over draws (ddof 1); draws resample one network's confidences",
    }


def check_sets(test: ImageSet, ood: Mapping[str, ImageSet]) -> None:
    """Refuse sets that cannot be measured, and warn of those that are probably a mistake."""
    if test.labels is None:
        raise MacsError(f"{test.name} has no labels to measure accuracy with; a folder needs one sub-folder per class.")
    if not ood:
        raise MacsError("There is no OOD set to measure; name at least one.")
    for index, (name, images) in enumerate(ood.items()):
        if same_pixels(images, test):
            warn(f"The OOD set {name} holds the ID test images of {test.name}; no score can tell the two apart.")
        for earlier in list(ood)[:index]:
            if same_pixels(images, ood[earlier]):
                warn(f"The OOD sets {earlier} and {name} hold the same images, which count twice in the means.")


def measure(
    id: str,
    correct: NDArray[np.bool_],
    conf_in: NDArray[np.float32],
    conf_out: Mapping[str, NDArray[np.float32]],
    score: str = "msp",
    protocol: Protocol | None = None,
    reliability: Reliability | None = None,
) -> Evaluation:
    """All results from confidences alone; `correct` says which predictions on the ID test set are right.

    `reliability` is what is known of the class probabilities, which confidences do not tell.
    """
    protocol = protocol or Protocol()
    return Evaluation(
        id=id,
        images=len(correct),
        score=score,
        protocol=protocol,
        accuracy=float(correct.mean()),
        draw_accuracies=drawn_accuracies(correct, protocol),
        sets=[
            SetResult(
                name=name,
                images=len(confidences),
                full=ood_metrics(conf_in, confidences, protocol.fpr_rule),
                draws=drawn_metrics(conf_in, confidences, protocol),
            )
            for name, confidences in conf_out.items()
        ],
        selective=risk_coverage(correct, conf_in),
        reliability=reliability,
        histogram=Histogram.of(id, conf_in, conf_out),
    )
