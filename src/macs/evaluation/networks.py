"""From a network and image sets to results: how well its confidence tells known from unknown images.

Each set passes through the network once; every number comes from those confidences (macs.evaluation.results).
`evaluate` measures one score. `evaluate_scores` ranks several, from the same single pass over each set.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.compatibility import warn_of_guessing
from macs.data.conversion import to_images, to_sets
from macs.evaluation.protocol import Protocol, check_fit_images
from macs.evaluation.results import Evaluation, Ranking, check_sets, measure
from macs.evaluation.softmax import fit_softmax
from macs.metrics import FprRule
from macs.scores import LIMIT, Combined, Score, Train, ask_all, available, fit_all, get


def evaluate(
    net: nn.Module,
    test: ImageSet | Any,
    ood: Mapping[str, ImageSet | Any],
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
    """Measure how well a network's confidences tell its ID test images from OOD images.

    Each set passes through the network once.

    Parameters
    ----------
    net
        Any nn.Module that takes float pixels N x 3 x H x W in [0, 1] and returns logits.
    test
        ID test images with labels: an ImageSet, a torch DataLoader, or any other form of macs.data.conversion.
    ood
        Sets of unknown images, by name, likewise.
    score
        Name of a score, a sum such as "msp+vim", or a `Score` with settings of your own: `KNN(k=10)`.
    train
        ID training images, for a score that is fitted (`knn`, `vim`, ...); a function that loads them will do.
    held_out
        ID images that the network was not trained on, on which a sum is standardised; without these, it is standardised
        on training images that its parts are not fitted to.
    fit_images
        Number of training images to use, drawn at random; 0 means all.
    trials, share, seed
        The paper's protocol: so many draws of this share of the ID test set, and their seed.
    fpr_rule
        Which threshold FPR95 uses; see `metrics.ood_metrics`.
    precision
        "float32", "bf16", or "auto", which takes bf16 where the hardware multiplies it faster.
    progress
        Show a progress bar.

    Returns
    -------
    Evaluation
        The accuracy, and the metrics of each OOD set; printed, it is a table.

    Examples
    --------
    >>> import macs
    >>> net = macs.nets.build("wrn-10-1", classes=8)
    >>> test, textures = macs.data.load("digits", "test"), macs.data.load("digits-textures", "test")
    >>> result = macs.evaluate(net, test, {"textures": textures}, score="energy", progress=False)
    >>> 0 <= result.sets[0].full.auroc <= 1
    True
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
    test: ImageSet | Any,
    ood: Mapping[str, ImageSet | Any],
    scores: Mapping[str, Score] | Sequence[str | Score] | None = None,
    *,
    train: Train = None,
    held_out: Train = None,
    fit_images: int = LIMIT,
    protocol: Protocol | None = None,
    precision: str = "auto",
    progress: bool = True,
) -> Ranking:
    """Like `evaluate`, for several scores (None: all), from one pass over each set; ODIN and AdaSCALE need more.

    A score that cannot be computed is left out, with the reason; if none can be computed, that is an error.
    """
    protocol = protocol or Protocol()
    check_fit_images(fit_images)
    nets.require_net(net)
    preparation = nets.preparation_of(net)
    test, ood = to_images(test, "ID test images", preparation), to_sets(ood, "OOD sets", preparation)
    check_sets(test, ood)
    test = nets.prepared_for(net, test)
    ood = {name: nets.prepared_for(net, images, like=test) for name, images in ood.items()}
    wanted = scores if isinstance(scores, Mapping) else by_name(scores or available())
    fit = fit_all(
        wanted, net, test, train, held_out, limit=fit_images, seed=protocol.seed, precision=precision, progress=progress
    )
    answers, left_out = {}, fit.left_out
    softmax = fit_softmax(net, test, held_out, protocol.seed, precision, progress)
    for images in (test, *ood.values()):
        remaining = {name: score for name, score in fit.scores.items() if name not in left_out}
        if remaining and images not in answers:
            beside = softmax.scores if images is test else {}
            answers[images], failed = ask_all(net, images, {**remaining, **beside}, precision, progress)
            left_out.update({name: reason for name, reason in failed.items() if name in remaining})
    reliability = softmax.reliability(answers[test], test) if answers else None
    evaluations = []
    for name in (name for name in fit.scores if name not in left_out):
        known = answers[test][name]
        unknown = {ood_name: answers[images][name].confidence for ood_name, images in ood.items()}
        try:
            correct = known.index == test.labels
            evaluations.append(measure(test.name, correct, known.confidence, unknown, name, protocol, reliability))
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
        standardised=[name for name, score in fit.scores.items() if isinstance(score, Combined)],
        fitted_held_out=[name for name, score in fit.scores.items() if _only_held_out(score)],
    )


def _only_held_out(score: Score) -> bool:
    """Whether a single score is fitted to held-out images."""
    return score.needs("held-out images") and not isinstance(score, Combined)


def by_name(scores: Sequence[str | Score]) -> dict[str, Score]:
    """Scores by the name that was given, or by the score's own Python expression, such as `KNN(k=10)`."""
    pairs = [(entry, get(entry)) for entry in scores]
    return {entry if isinstance(entry, str) else score.written: score for entry, score in pairs}
