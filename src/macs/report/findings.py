"""The content of a report: an answer for every image, the metrics, and how the network was trained or calibrated.

Only a report on a network needs torch; one on an exported detector does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.compatibility import warn_of_guessing
from macs.data.conversion import to_images, to_sets
from macs.detector.base import ImageDetector
from macs.detector.calibration import Calibration
from macs.evaluation.results import Evaluation, check_sets, measure
from macs.metrics import Reliability
from macs.predictions import Predictions

if TYPE_CHECKING:
    from torch import nn

    from macs.detector import Detector
    from macs.report.neighbours import Compared
    from macs.scores import Score, Train
    from macs.training.runs import Epoch
    from macs.training.spec import TrainingSpec


@dataclass(frozen=True, eq=False, kw_only=True)
class Judged(Predictions):
    """A set of images under the title that the reader sees, with the network's predictions."""

    title: str
    images: ImageSet


@dataclass(frozen=True)
class TrainingRecord:
    """What a run folder records about a training."""

    spec: "TrainingSpec"
    margin: float | None  # the method's margin, if it has one
    limit: float | None  # the confidence gap at which the method stops pushing, if it does
    epochs: "list[Epoch]"


@dataclass(frozen=True)
class DetectorRecord:
    """How a detector was calibrated, and the share of each set that its own thresholds keep, the known set first."""

    calibration: Calibration
    kept: list[float]


@dataclass(frozen=True)
class Findings:
    known: Judged
    unknown: list[Judged]
    evaluation: Evaluation
    training: TrainingRecord | None = None
    detector: DetectorRecord | None = None
    compared: "Sequence[Sequence[Compared]]" = ()  # some images of each set, beside training images; none if empty

    @property
    def sets(self) -> list[Judged]:
        """All sets, the known one first."""
        return [self.known, *self.unknown]


def find_in_network(
    net: "nn.Module",
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    run: str | Path | None,
    score: "str | Score",
    train: "Train",
    held_out: "Train",
    precision: str,
    progress: bool,
) -> Findings:
    """Every image passes through the network once; tables, plots and pictures come from the same answers."""
    from macs import nets, scores
    from macs.evaluation.networks import by_name
    from macs.evaluation.softmax import fit_softmax
    from macs.report.neighbours import neighbours_of

    preparation = nets.preparation_of(net)
    test, ood = to_images(test, "ID test images", preparation), to_sets(ood, "OOD sets", preparation)
    check_sets(test, ood)
    training = read_training(Path(run)) if run is not None else None
    wanted = by_name([score])
    fitted = scores.fit_all(wanted, net, test, train, held_out, precision=precision, progress=progress)
    for reason in fitted.left_out.values():
        raise MacsError(reason)
    ((name, scorer),) = fitted.scores.items()
    softmax = fit_softmax(net, test, held_out, 0, precision, progress)
    asked = scores.ask_all(net, test, {name: scorer, **softmax.scores}, precision, progress)
    for reason in asked[1].values():
        raise MacsError(reason)
    answers = [asked[0][name], *(scores.ask(net, images, scorer, precision, progress) for images in ood.values())]
    reliability = softmax.reliability(asked[0], test)
    found = Findings(*_measured(test, ood, answers, name, reliability), training=training)
    return replace(found, compared=neighbours_of(net, scorer, found.sets, train, precision, progress))


def find_in_detector(
    judge: ImageDetector, test: ImageSet, ood: Mapping[str, ImageSet], progress: bool, train: "Train" = None
) -> Findings:
    """The same from a detector's confidences, with what its own thresholds keep.

    An exported detector gives no features, so it compares no images.
    """
    test = to_images(test, "ID test images", judge.preparation)
    ood = to_sets(ood, "OOD sets", judge.preparation)
    judge.check_fit(test, ood)
    verdicts = [judge.predict(images, progress=progress) for images in (test, *ood.values())]
    record = judge.calibrated
    kept = [1 - float(on_set.is_ood.mean()) for on_set in verdicts]
    reliability = judge.reliability(test.resized(judge.preparation), progress)
    measured = _measured(test, ood, verdicts, record.score, reliability)
    found = Findings(*measured, detector=DetectorRecord(record, kept))
    if train is None or not hasattr(judge, "net"):
        return found
    from macs.report.neighbours import neighbours_of

    own, precision = cast("Detector", judge), "float32"  # in which it computes
    return replace(found, compared=neighbours_of(own.net, own.score, found.sets, train, precision, progress))


def _measured(
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    answers: Sequence[Predictions],
    score: str,
    reliability: Reliability | None,
) -> tuple[Judged, list[Judged], Evaluation]:
    """The sets with their answers, and the metrics; the first answers are those of the known set."""
    known, *unknown = (
        Judged(on_set.index, on_set.confidence, title=title, images=images)
        for on_set, (title, images) in zip(answers, [(test.name, test), *ood.items()], strict=True)
    )
    confidences = {judged.title: judged.confidence for judged in unknown}
    correct = known.index == test.labels
    numbers = measure(test.name, correct, known.confidence, confidences, score=score, reliability=reliability)
    warn_of_guessing(numbers.accuracy, len(test.classes), test.name)
    return known, unknown, numbers


def read_training(folder: Path) -> TrainingRecord:
    """The spec and the epochs of a run."""
    from macs import methods
    from macs.training.runs import RunFolder

    spec, epochs = RunFolder(folder).spec, RunFolder(folder).epochs()
    if ":" in spec.method:  # the user's own, which is not imported because a file names it
        return TrainingRecord(spec, None, None, epochs)
    method = methods.build(spec.method, spec.recipe.options)
    return TrainingRecord(spec, getattr(method, "margin", None), method.gap_limit, epochs)
