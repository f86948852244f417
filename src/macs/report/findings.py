"""All that a report rests on: what the network says of every image, its numbers, and how it was trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import nn

from macs import methods, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fitness import warn_of_guessing
from macs.evaluation import Evaluation, measure, run_net
from macs.evaluation.measurement import check_sets
from macs.methods.macs import MarginBoundedConfidence
from macs.training.runs import Epoch, RunFolder
from macs.training.spec import TrainingSpec


@dataclass(frozen=True)
class Judged:
    """A set of images with one prediction and one confidence each; the reader knows it by its title."""

    title: str
    images: ImageSet
    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]


@dataclass(frozen=True)
class Training:
    """What a run folder tells of a training."""

    spec: TrainingSpec
    margin: float | None  # of the method, if it has one
    limit: float | None  # of the confidence gap: where the method stops pushing, if it does
    epochs: list[Epoch]


@dataclass(frozen=True)
class Findings:
    known: Judged
    unknown: list[Judged]
    evaluation: Evaluation
    training: Training | None


def find(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    run: str | Path | None,
    score: str | scores.Score,
    train: scores.Train,
    precision: str,
    progress: bool,
) -> Findings:
    """Every image passes through the network once; tables, plots and pictures come from the same answers."""
    check_sets(test, ood)
    training = read_training(Path(run)) if run is not None else None
    name, scorer = str(score), scores.get(score)
    fitted = scores.fit_all({name: scorer}, net, test, train, precision=precision, progress=progress)
    if fitted.left_out:
        raise MacsError(fitted.left_out[name])

    def judge(title: str, images: ImageSet) -> Judged:
        answers = run_net(net, images, scorer, precision, progress)
        return Judged(title, images, answers.predictions, answers.confidences)

    known = judge(test.name, test)
    unknown = [judge(title, images) for title, images in ood.items()]
    confidences = {each.title: each.confidences for each in unknown}
    numbers = measure(test.name, known.predictions == test.labels, known.confidences, confidences, score=name)
    warn_of_guessing(numbers.accuracy, len(test.classes), test.name)
    return Findings(known, unknown, numbers, training)


def read_training(folder: Path) -> Training:
    """The record and the epochs of a run."""
    spec, epochs = RunFolder(folder).spec, RunFolder(folder).epochs()
    method = methods.build(spec.method, spec.recipe.options)
    bounded = isinstance(method, MarginBoundedConfidence) and (method.variant, method.reduction) == ("margin", "mean")
    margin: float | None = getattr(method, "margin", None)
    return Training(spec, margin, margin if bounded else None, epochs)
