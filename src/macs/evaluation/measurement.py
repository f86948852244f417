"""From a network and image sets to results: how well its confidence tells known from unknown images.

Each set passes through the network once; every number comes from those confidences. There are two protocols:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.

`evaluate` measures one score. `evaluate_scores` ranks several, from the same single pass over each set.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn

from macs import nets
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fingerprint import same_pixels
from macs.data.fitness import warn_of_guessing
from macs.data.imageset import require_images, require_sets
from macs.evaluation.protocol import Protocol, check_fit_images, drawn_accuracies, drawn_metrics
from macs.evaluation.results import Evaluation, Ranking, SetResult
from macs.metrics import FprRule, ood_metrics
from macs.scores import LIMIT, Score, Train, ask_all, available, fit_all, get


def evaluate(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    *,
    score: str | Score = "msp",
    train: Train = None,
    held_out: Train = None,
    fit_images: int = LIMIT,
    trials: int = 10,
    share: float = 0.2,
    seed: int = 0,
    fpr_rule: FprRule = "first",
    precision: str = "auto",
    progress: bool = True,
) -> Evaluation:
    """Score the ID test set and each OOD set once, and measure how well the confidences separate them.

    A score that is fitted (`knn`, `vim`, ...) needs ID training images as `train`, of which it uses `fit_images`, drawn
    at random (0: all). A sum (`msp+vim`) is standardised on `held_out`, ID images that the network was not trained on;
    without any, on training images that its parts are not fitted to. To change a score's
    settings, give the score itself: `KNN(k=10)`.
    """
    ranking = evaluate_scores(
        net,
        test,
        ood,
        [score],
        train=train,
        held_out=held_out,
        fit_images=fit_images,
        protocol=Protocol(trials, share, seed, fpr_rule),
        precision=precision,
        progress=progress,
    )
    return ranking.evaluations[0]


def evaluate_scores(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    scores: Mapping[str, Score] | Sequence[str | Score] | None = None,
    *,
    train: Train = None,
    held_out: Train = None,
    fit_images: int = LIMIT,
    protocol: Protocol | None = None,
    precision: str = "auto",
    progress: bool = True,
) -> Ranking:
    """Like `evaluate`, for several scores (None: all), from one pass over each set; ODIN needs passes of its own.

    A score that cannot be computed is left out, with the reason; if none can be computed, that is an error.
    """
    protocol = protocol or Protocol()
    check_fit_images(fit_images)
    nets.require_net(net)
    check_sets(test, ood)
    wanted = scores if isinstance(scores, Mapping) else by_name(scores or available())
    fit = fit_all(
        wanted, net, test, train, held_out, limit=fit_images, seed=protocol.seed, precision=precision, progress=progress
    )
    answers, left_out = {}, fit.left_out
    for images in (test, *ood.values()):
        remaining = {name: score for name, score in fit.scores.items() if name not in left_out}
        if remaining and images not in answers:
            answers[images], failed = ask_all(net, images, remaining, precision, progress)
            left_out.update(failed)
    evaluations = []
    for name in (name for name in fit.scores if name not in left_out):
        known = answers[test][name]
        unknown = {ood_name: answers[images][name].confidences for ood_name, images in ood.items()}
        try:
            correct = known.predictions == test.labels
            evaluations.append(measure(test.name, correct, known.confidences, unknown, name, protocol))
        except MacsError as error:
            left_out[name] = str(error)
    if not evaluations:
        raise MacsError(" ".join(dict.fromkeys(left_out.values())))
    warn_of_guessing(evaluations[0].accuracy, len(test.classes), test.name)
    return Ranking(
        evaluations=sorted(evaluations, key=lambda evaluation: -evaluation.mean("auroc")),
        left_out=left_out,
        train=fit.train,
        train_images=fit.images,
        fitted=[name for name, score in fit.scores.items() if score.needs("training images")],
        held_out=fit.held_out,
        held_out_images=fit.held_out_images,
        standardised=[name for name, score in fit.scores.items() if score.needs("held-out images")],
    )


def by_name(scores: Sequence[str | Score]) -> dict[str, Score]:
    """Scores by the name that was given, or by the score's own Python expression, such as `KNN(k=10)`."""
    pairs = [(entry, get(entry)) for entry in scores]
    return {entry if isinstance(entry, str) else score.written: score for entry, score in pairs}


def check_sets(test: ImageSet, ood: Mapping[str, ImageSet]) -> None:
    """Refuse sets that cannot be measured, and warn of those that are probably a mistake."""
    test, ood = require_images(test, "ID test images"), require_sets(ood, "OOD sets")
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
) -> Evaluation:
    """All results from confidences alone; `correct` says which predictions on the ID test set are right."""
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
    )
