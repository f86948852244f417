"""Several detectors or runs side by side, on the same images: their numbers, their curves, and where they disagree.

A detector decides by its own threshold; a run by the one that keeps 95% of the known images of the page.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from macs.core import __version__
from macs.core.errors import MacsError
from macs.core.files import output_file, write_text
from macs.data import ImageSet
from macs.evaluation.results import Evaluation
from macs.metrics import shown
from macs.report import charts
from macs.report.findings import Findings, Judged, find_in_detector
from macs.report.page import FOLDER, columns, percent, short
from macs.report.thumbnails import Thumbnail, thumbnail

if TYPE_CHECKING:
    from macs.detector.base import ImageDetector

KEEP = 0.95  # share of the known images that the threshold of a run keeps
POINTS = 300  # of a curve
PICTURES = 8  # per set and direction
STYLES = ("known", "s0", "s1", "s2", "s3", "s4", "s5", "s6")


@dataclass(frozen=True)
class Subject:
    """A detector or a run under the name that the reader sees, and whether it keeps each image of each set."""

    title: str
    net: str
    score: str
    findings: Findings
    kept: list[NDArray[np.bool_]]  # the known set first
    calibrated: bool  # whether the threshold is its own

    @property
    def evaluation(self) -> Evaluation:
        return self.findings.evaluation

    @property
    def sets(self) -> list[Judged]:
        return [self.findings.known, *self.findings.unknown]


def subject_of_detector(
    title: str, net: str, judge: "ImageDetector", test: ImageSet, ood: Mapping[str, ImageSet], progress: bool = True
) -> Subject:
    """A detector, which decides by its own threshold."""
    findings = find_in_detector(judge, test, ood, progress)
    tau = judge.thresholds()
    kept = [
        judged.confidence >= (tau[judged.index] if tau.ndim else tau) for judged in (findings.known, *findings.unknown)
    ]
    return Subject(title, net, findings.evaluation.score, findings, kept, calibrated=True)


def subject_of_run(title: str, net: str, findings: Findings) -> Subject:
    """A run, which decides by the highest threshold that keeps 95% of the known images."""
    known = np.sort(findings.known.confidence)
    tau = known[len(known) - math.ceil(KEEP * len(known))]
    kept = [judged.confidence >= tau for judged in (findings.known, *findings.unknown)]
    return Subject(title, net, findings.evaluation.score, findings, kept, calibrated=False)


def write_comparison(path: str | Path, subjects: Sequence[Subject]) -> None:
    """Write the page about two or more subjects that were measured on the same images."""
    path = output_file(path)
    check_alike(subjects)
    write_text(path, render(subjects).encode("utf-8", "replace").decode("utf-8"))


def check_alike(subjects: Sequence[Subject]) -> None:
    """Raise unless there are several subjects with distinct names and the same images."""
    if len(subjects) < 2:
        raise MacsError("A comparison takes at least two detectors or runs; name another.")
    if len(subjects) > len(STYLES):
        raise MacsError(f"A comparison shows at most {len(STYLES)} detectors or runs; name fewer.")
    for first, other in pairwise(subjects):
        if first.sets[0].images.classes != other.sets[0].images.classes:
            raise MacsError(f"{first.title} and {other.title} know different classes, so they cannot be compared.")
        for one, another in zip(first.sets, other.sets, strict=True):
            if len(one) != len(another):
                raise MacsError(
                    f"{first.title} and {other.title} were measured on different images of {one.title}; name the "
                    "images with --id and --ood."
                )


@dataclass(frozen=True)
class Disagreement:
    """An image that one subject judges right and another wrong."""

    picture: Thumbnail
    other: Thumbnail  # the same image as the other subject sees it


@dataclass(frozen=True)
class Disagreements:
    """The images of a set that two subjects judge differently, in both directions."""

    title: str
    known: bool
    counts: tuple[int, int]  # right by the first alone, right by the second alone
    first: list[Disagreement]
    second: list[Disagreement]


def disagreements(first: Subject, second: Subject, index: int) -> Disagreements:
    """Return those of one set, the known one if the index is 0; the clearest disagreements come first."""
    one, other = first.sets[index], second.sets[index]
    right_first, right_second = (subject.kept[index] == (index == 0) for subject in (first, second))
    gap = place_among_known(first, index) - place_among_known(second, index)
    clear = gap if index == 0 else -gap  # how much better the first one judges the image

    def of(wanted: NDArray[np.bool_], order: NDArray[np.int64]) -> list[Disagreement]:
        chosen = [int(i) for i in order if wanted[i]][:PICTURES]
        classes = first.sets[0].images.classes
        return [Disagreement(thumbnail(one, classes, i), thumbnail(other, classes, i)) for i in chosen]

    alone, other_alone = right_first & ~right_second, right_second & ~right_first
    return Disagreements(
        one.title,
        index == 0,
        (int(alone.sum()), int(other_alone.sum())),
        of(alone, np.argsort(-clear, kind="stable")),
        of(other_alone, np.argsort(clear, kind="stable")),
    )


def place_among_known(subject: Subject, index: int) -> NDArray[np.float64]:
    """Return the share of the known images whose confidence is lower, since two scores have no common scale."""
    known = np.sort(subject.sets[0].confidence)
    places: NDArray[np.float64] = np.searchsorted(known, subject.sets[index].confidence) / len(known)
    return places


def roc(subjects: Sequence[Subject], index: int) -> charts.Chart:
    """Return the ROC curves of all subjects on one unknown set."""
    curves = []
    for subject, style in zip(subjects, STYLES, strict=False):
        known, unknown = np.sort(subject.sets[0].confidence), np.sort(subject.sets[index].confidence)
        levels = np.unique(np.concatenate([known, unknown]))
        levels = levels[np.linspace(0, len(levels) - 1, min(POINTS, len(levels))).astype(int)]
        flagged, caught = (np.searchsorted(each, levels) / len(each) for each in (known, unknown))
        curves.append(charts.Curve(subject.title, style, charts.path([*flagged, 1], [*caught, 1])))
    title = subjects[0].sets[index].title
    areas = ", ".join(
        f"{subject.title} {100 * subject.evaluation.sets[index - 1].full.auroc:.2f}%" for subject in subjects
    )
    ticks = charts.Axis(0, 1).ticks(percent=True)
    return charts.Chart(
        "known images flagged", "unknown images caught", f"ROC curves on {title}; areas: {areas}.", curves, ticks, ticks
    )


def risk_coverage(subjects: Sequence[Subject]) -> charts.Chart:
    """Return the share of wrong answers among the most confident known images, for every share that is answered."""
    curves, areas = [], []
    risks = [subject.evaluation.selective for subject in subjects]
    highest = max(float(risk.risk.max()) for risk in risks if risk is not None)
    axis = charts.Axis.around(0, max(highest, 1e-3))
    for subject, risk, style in zip(subjects, risks, STYLES, strict=False):
        if risk is not None:
            at = np.linspace(0, len(risk.risk) - 1, min(POINTS, len(risk.risk))).astype(int)
            line = charts.path(risk.coverage[at], axis.at(risk.risk[at]))
            curves.append(charts.Curve(subject.title, style, line))
            areas.append(f"{subject.title} {risk.aurc:.4f}")
    alt = f"Risk against coverage; the areas under the curves are {', '.join(areas)}; lower is better."
    x_ticks, y_ticks = charts.Axis(0, 1).ticks(percent=True), axis.ticks(percent=True)
    return charts.Chart("known images answered", "wrong answers among them", alt, curves, x_ticks, y_ticks)


def render(subjects: Sequence[Subject]) -> str:
    """Return the whole page."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "short": short, "columns": columns}
    count = len(subjects[0].sets)
    others = [
        (subjects[0], other, [disagreements(subjects[0], other, index) for index in range(count)])
        for other in subjects[1:]
    ]
    return environment.get_template("comparison.html").render(
        style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
        version=__version__,
        subjects=list(zip(subjects, STYLES, strict=False)),
        metrics=shown(),
        rows=rows(subjects),
        sets=[judged.title for judged in subjects[0].sets],
        known=subjects[0].sets[0],
        rocs=[(judged.title, roc(subjects, index)) for index, judged in enumerate(subjects[0].sets) if index],
        risk=risk_coverage(subjects),
        pairs=others,
        keep=KEEP,
    )


@dataclass(frozen=True)
class Row:
    """A number of each subject; `best` are those of the highest or lowest value."""

    name: str
    values: list[float]
    higher: bool | None  # whether higher is better; None where neither is

    @property
    def best(self) -> list[bool]:
        if self.higher is None:
            return [False] * len(self.values)
        top = max(self.values) if self.higher else min(self.values)
        return [value == top for value in self.values]


def rows(subjects: Sequence[Subject]) -> list[Row]:
    """Return the numbers of the summary: over all sets, and set by set."""
    evaluations = [subject.evaluation for subject in subjects]
    found = [Row("ID accuracy", [evaluation.accuracy for evaluation in evaluations], True)]
    for metric in shown():
        values = [evaluation.mean(metric.name) for evaluation in evaluations]
        mean = ", mean" if len(evaluations[0].sets) > 1 else ""
        found.append(Row(f"{metric.label}{mean}", values, metric.better == "higher"))
    titles = [judged.title for judged in subjects[0].sets]
    found.append(Row(f"{titles[0]} kept by the threshold", [float(one.kept[0].mean()) for one in subjects], None))
    for index, title in enumerate(titles):
        if index:
            caught = [1 - float(one.kept[index].mean()) for one in subjects]
            found.append(Row(f"{title} caught by the threshold", caught, None))
    return found


def as_dict(subjects: Sequence[Subject]) -> dict[str, Any]:
    """Return all numbers, subject by subject, and how often two of them disagree."""
    first = subjects[0]
    return {
        "subjects": {subject.title: subject.evaluation.as_dict() for subject in subjects},
        "disagreements": {
            f"{first.title} and {other.title}": {
                first.sets[index].title: dict(
                    zip(
                        ("right_by_first_alone", "right_by_second_alone"),
                        disagreements(first, other, index).counts,
                        strict=True,
                    )
                )
                for index in range(len(first.sets))
            }
            for other in subjects[1:]
        },
    }
