"""A network and image sets -> a table: how well its confidence tells known from unknown images.

Each set passes through the network once; every number comes from those confidences. Two protocols are reported apart:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.

`evaluate` measures one score. `evaluate_scores` ranks several: the same single pass over each set serves them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fingerprint import same_pixels
from macs.data.fitness import warn_of_guessing
from macs.data.imageset import require_images, require_sets
from macs.evaluation.protocol import check_protocol
from macs.metrics import METRICS, FprRule, OODMetrics, drawn_metrics, mean_and_error, ood_metrics
from macs.scores import LIMIT, Score, Train, ask_all, available, fit_all, get


@dataclass(frozen=True)
class SetResult:
    """One OOD set against the ID test set."""

    name: str
    images: int
    full: OODMetrics
    draws: list[OODMetrics]


@dataclass(frozen=True)
class Evaluation:
    """The numbers of one network, as shares in [0, 1]; print it for a table, `as_dict()` for everything."""

    id: str
    images: int
    score: str
    fpr_rule: FprRule
    share: float
    accuracy: float
    draw_accuracies: list[float]
    sets: list[SetResult]

    @property
    def drawn(self) -> int:
        """ID images in a draw."""
        return max(1, int(self.images * self.share))

    def mean(self, metric: str) -> float:
        """The mean over the OOD sets, full protocol."""
        return float(np.mean([getattr(result.full, metric) for result in self.sets]))

    def draw_means(self, metric: str) -> list[float]:
        """The mean over the OOD sets in each draw."""
        per_set = [[getattr(draw, metric) for draw in result.draws] for result in self.sets]
        return [float(value) for value in np.mean(per_set, axis=0)]

    def as_dict(self) -> dict[str, Any]:
        """Everything, per draw, with the conventions spelt out."""
        accuracy, accuracy_error = mean_and_error(self.draw_accuracies)
        summaries = {metric: mean_and_error(self.draw_means(metric)) for metric in METRICS}
        return {
            "conventions": {"confidence": f"{self.score}; higher means ID", **conventions(self.fpr_rule)},
            "id": {"name": self.id, "images": self.images, "accuracy": self.accuracy},
            "ood": {
                result.name: {
                    "images": result.images,
                    "full": asdict(result.full),
                    "draws": [asdict(draw) for draw in result.draws],
                }
                for result in self.sets
            },
            "mean": {
                "full": {metric: self.mean(metric) for metric in METRICS},
                "draws": {metric: {"mean": m, "error": e} for metric, (m, e) in summaries.items()},
                "accuracy": {"mean": accuracy, "error": accuracy_error, "draws": self.draw_accuracies},
            },
        }

    def __rich__(self) -> Any:
        from macs.evaluation.tables import evaluation_tables

        return evaluation_tables(self)

    def __str__(self) -> str:
        from macs.evaluation.tables import plain_text

        return plain_text(self)


@dataclass(frozen=True)
class Ranking:
    """Several scores of one network, the best first by mean AUROC; print it for a table, `as_dict()` for everything.

    It is a comparison on test sets. Whoever picks a score by it has to measure that score on other sets.
    """

    evaluations: list[Evaluation]
    left_out: dict[str, str]  # score -> why
    train: str  # the ID training images that some scores are fitted to; empty where none is
    train_images: int
    fitted: list[str]  # the scores that are

    def __getitem__(self, score: str) -> Evaluation:
        return {each.score: each for each in self.evaluations}[score]

    def as_dict(self) -> dict[str, Any]:
        """Everything, score by score in the order of the ranking."""
        first = self.evaluations[0]
        each = {evaluation.score: evaluation.as_dict() for evaluation in self.evaluations}
        return {
            "conventions": {"confidence": "higher means ID", **conventions(first.fpr_rule)},
            "id": first.as_dict()["id"],
            "fitted": {"train": self.train, "images": self.train_images, "scores": self.fitted},
            "scores": {name: {"ood": value["ood"], "mean": value["mean"]} for name, value in each.items()},
            "left_out": self.left_out,
        }

    def __rich__(self) -> Any:
        from macs.evaluation.tables import ranking_table

        return ranking_table(self)

    def __str__(self) -> str:
        from macs.evaluation.tables import plain_text

        return plain_text(self)


def conventions(fpr_rule: FprRule) -> dict[str, str]:
    """What the numbers mean, for those who read them without us."""
    return {
        "unit": "shares between 0 and 1",
        "auroc": "the same whichever class is positive",
        "aupr": "OOD positive, average precision",
        "fpr95": "OOD positive: share of ID images flagged when 95% of OOD images are caught; "
        "the FPR95 of OpenOOD 1.5 and pytorch-ood",
        "aupr_id": "ID positive, average precision",
        "fpr95_id": "ID positive: share of OOD images accepted when 95% of ID images are kept; "
        "the FPR95 of energy_ood and DivOE, and 1 - TNR95 of MixOE",
        "aupr_trapezoid": "OOD positive, trapezoidal rule: the AUPR-OUT of pytorch-ood and OpenOOD",
        "aupr_trapezoid_id": "ID positive, trapezoidal rule: the AUPR-IN of pytorch-ood and OpenOOD",
        "fpr_rule": f"{fpr_rule} threshold",
        "error": "standard error over draws (ddof 1); draws resample one network's confidences",
    }


def evaluate(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    *,
    score: str | Score = "msp",
    train: Train = None,
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
    at random (0: all). For other settings than the default ones give the score itself: `KNN(k=10)`.
    """
    ranking = evaluate_scores(
        net,
        test,
        ood,
        [score],
        train=train,
        fit_images=fit_images,
        trials=trials,
        share=share,
        seed=seed,
        fpr_rule=fpr_rule,
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
    fit_images: int = LIMIT,
    trials: int = 10,
    share: float = 0.2,
    seed: int = 0,
    fpr_rule: FprRule = "first",
    precision: str = "auto",
    progress: bool = True,
) -> Ranking:
    """As `evaluate`, for several scores (None: all there are), from one pass over each set; ODIN adds its own.

    A score that cannot be computed is left out, with the reason; it is an error only if none can.
    """
    check_protocol(trials, share, seed, fit_images)
    check_sets(test, ood)
    wanted = scores if isinstance(scores, Mapping) else by_name(scores or available())
    fit = fit_all(wanted, net, test, train, limit=fit_images, seed=seed, precision=precision, progress=progress)
    answers, left_out = {}, fit.left_out
    for images in (test, *ood.values()):
        remaining = {name: score for name, score in fit.scores.items() if name not in left_out}
        if remaining and images not in answers:
            answers[images], failed = ask_all(net, images, remaining, precision, progress)
            left_out.update(failed)
    evaluations = []
    for name in (name for name in fit.scores if name not in left_out):
        known = answers[test][name]
        try:
            evaluation = measure(
                test.name,
                known.predictions == test.labels,
                known.confidences,
                {each: answers[images][name].confidences for each, images in ood.items()},
                score=name,
                trials=trials,
                share=share,
                seed=seed,
                fpr_rule=fpr_rule,
            )
            evaluations.append(evaluation)
        except MacsError as error:
            left_out[name] = str(error)
    if not evaluations:
        raise MacsError(" ".join(dict.fromkeys(left_out.values())))
    warn_of_guessing(evaluations[0].accuracy, len(test.classes), test.name)
    return Ranking(
        evaluations=sorted(evaluations, key=lambda each: -each.mean("auroc")),
        left_out=left_out,
        train=fit.train,
        train_images=fit.images,
        fitted=[name for name, score in fit.scores.items() if score.fitted_to == "training images"],
    )


def by_name(scores: Sequence[str | Score]) -> dict[str, Score]:
    """Scores under the names that they were asked for by, or as they are written in Python."""
    found = [(each, get(each)) for each in scores]
    return {each if isinstance(each, str) else score.written: score for each, score in found}


def check_sets(test: ImageSet, ood: Mapping[str, ImageSet]) -> None:
    """Refuse sets that cannot be measured, and point out those that were hardly meant."""
    test, ood = require_images(test, "ID test images"), require_sets(ood, "OOD sets")
    if test.labels is None:
        raise MacsError(f"{test.name} has no labels to measure accuracy with; a folder needs one sub-folder per class.")
    if not ood:
        raise MacsError("There is no OOD set to measure; name at least one.")
    for place, (name, images) in enumerate(ood.items()):
        if same_pixels(images, test):
            warn(f"The OOD set {name} holds the ID test images of {test.name}, from which nothing can tell it apart.")
        for earlier in list(ood)[:place]:
            if same_pixels(images, ood[earlier]):
                warn(f"The OOD sets {earlier} and {name} hold the same images, which count twice in the means.")


def measure(
    id: str,
    correct: NDArray[np.bool_],
    conf_in: NDArray[np.float32],
    conf_out: Mapping[str, NDArray[np.float32]],
    *,
    score: str = "msp",
    trials: int = 10,
    share: float = 0.2,
    seed: int = 0,
    fpr_rule: FprRule = "first",
) -> Evaluation:
    """Every number from confidences alone: of the ID test set, with which predictions are correct, and of OOD sets."""
    results = []
    for name, confidences in conf_out.items():
        draws = drawn_metrics(conf_in, confidences, share=share, trials=trials, seed=seed, fpr_rule=fpr_rule)
        results.append(SetResult(name, len(confidences), ood_metrics(conf_in, confidences, fpr_rule=fpr_rule), draws))
    random = np.random.default_rng(seed)
    drawn = max(1, int(len(correct) * share))
    return Evaluation(
        id=id,
        images=len(correct),
        score=score,
        fpr_rule=fpr_rule,
        share=share,
        accuracy=float(correct.mean()),
        draw_accuracies=[float(random.choice(correct, drawn, replace=False).mean()) for _ in range(trials)],
        sets=results,
    )
