"""The content of a report: the network's answer for every image, its metrics, and how it was trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from macs import methods, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fitness import warn_of_guessing
from macs.evaluation import Evaluation, measure
from macs.evaluation.measurement import by_name, check_sets
from macs.training.runs import Epoch, RunFolder
from macs.training.spec import TrainingSpec


@dataclass(frozen=True, eq=False)
class Judged(scores.Answers):
    """A set of images under the title that the reader sees, with the network's answers."""

    title: str
    images: ImageSet


@dataclass(frozen=True)
class TrainingRecord:
    """What a run folder records about a training."""

    spec: TrainingSpec
    margin: float | None  # the method's margin, if it has one
    limit: float | None  # the confidence gap at which the method stops pushing, if it does
    epochs: list[Epoch]


@dataclass(frozen=True)
class Findings:
    known: Judged
    unknown: list[Judged]
    evaluation: Evaluation
    training: TrainingRecord | None


def find(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    run: str | Path | None,
    score: str | scores.Score,
    train: scores.Train,
    held_out: scores.Train,
    precision: str,
    progress: bool,
) -> Findings:
    """Every image passes through the network once; tables, plots and pictures come from the same answers."""
    check_sets(test, ood)
    training = read_training(Path(run)) if run is not None else None
    wanted = by_name([score])
    fitted = scores.fit_all(wanted, net, test, train, held_out, precision=precision, progress=progress)
    for reason in fitted.left_out.values():
        raise MacsError(reason)
    ((name, scorer),) = fitted.scores.items()

    def judge(title: str, images: ImageSet) -> Judged:
        answers = scores.ask(net, images, scorer, precision, progress)
        return Judged(answers.predictions, answers.confidences, title, images)

    known = judge(test.name, test)
    unknown = [judge(title, images) for title, images in ood.items()]
    confidences = {judged.title: judged.confidences for judged in unknown}
    numbers = measure(test.name, known.predictions == test.labels, known.confidences, confidences, score=name)
    warn_of_guessing(numbers.accuracy, len(test.classes), test.name)
    return Findings(known, unknown, numbers, training)


def read_training(folder: Path) -> TrainingRecord:
    """The spec and the epochs of a run."""
    spec, epochs = RunFolder(folder).spec, RunFolder(folder).epochs()
    method = methods.build(spec.method, spec.recipe.options)
    return TrainingRecord(spec, getattr(method, "margin", None), method.gap_limit, epochs)
