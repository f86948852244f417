"""A network and image sets -> a table: how well its confidence tells known from unknown images.

Each set passes through the network once; every number comes from those confidences. Two protocols are reported apart:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.

`evaluate` measures one score. `evaluate_scores` ranks several: the same single pass over each set serves them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from macs.core.console import track, warn
from macs.core.devices import device_of
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import scoring_batches, to_float
from macs.data.fingerprint import same_pixels
from macs.data.fitness import warn_of_guessing
from macs.data.imageset import require_images, require_sets
from macs.evaluation.protocol import Protocol, check_fit_images, drawn_accuracies, drawn_metrics
from macs.evaluation.results import Evaluation, Ranking, SetResult
from macs.inference import BATCH, Outputs, inference
from macs.metrics import FprRule, ood_metrics
from macs.scores import LIMIT, Score, Train, available, blamed, fit_all, get


@dataclass(frozen=True)
class Answers:
    """What a network says of a set of images: one prediction and one confidence each."""

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]
    fault: str = ""  # why there are no confidences, if the score failed

    def checked(self, images: str) -> Self:
        """These answers, or an error if there are none or a confidence is no number."""
        if self.fault:
            raise MacsError(self.fault)
        if broken := np.count_nonzero(np.isnan(self.confidences)):
            raise MacsError(
                f"{broken} of {len(self.confidences)} images of {images} get a confidence that is not a number; look "
                "at the network's logits for them, then at the score."
            )
        return self


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
        protocol=Protocol(trials, share, seed, fpr_rule),
        precision=precision,
        progress=progress,
    )
    return ranking.evaluations[0]


def evaluate_scores(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    scores: Sequence[str | Score] | None = None,
    *,
    train: Train = None,
    fit_images: int = LIMIT,
    protocol: Protocol | None = None,
    precision: str = "auto",
    progress: bool = True,
) -> Ranking:
    """As `evaluate`, for several scores (None: all there are), from one pass over each set; ODIN adds its own.

    A score that cannot be computed is left out, with the reason; it is an error only if none can.
    """
    protocol = protocol or Protocol()
    check_fit_images(fit_images)
    check_sets(test, ood)
    wanted = {str(each): get(each) for each in scores or available()}
    fit = fit_all(
        wanted, net, test, train, limit=fit_images, seed=protocol.seed, precision=precision, progress=progress
    )
    sets = (test, *ood.values()) if fit.scores else ()
    answers = {images: run_scores(net, images, fit.scores, precision, progress) for images in sets}
    evaluations, left_out = [], fit.left_out
    for name in fit.scores:
        try:
            known = answers[test][name].checked(test.name)
            unknown = {each: answers[images][name].checked(each).confidences for each, images in ood.items()}
            correct = known.predictions == test.labels
            evaluations.append(measure(test.name, correct, known.confidences, unknown, name, protocol))
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
        fitted=[name for name, scorer in fit.scores.items() if scorer.needs_training],
    )


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
    score: str = "msp",
    protocol: Protocol | None = None,
) -> Evaluation:
    """Every number from confidences alone: of the ID test set, with which predictions are correct, and of OOD sets."""
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


def run_net(
    net: nn.Module, images: ImageSet, score: str | Score, precision: str = "auto", progress: bool = False
) -> Answers:
    """One pass over a set: a prediction and a confidence for each image. A score that needs it must be fitted."""
    return run_scores(net, images, {"": get(score)}, precision, progress)[""].checked(images.name)


def run_scores(
    net: nn.Module, images: ImageSet, scorers: Mapping[str, Score], precision: str = "auto", progress: bool = False
) -> dict[str, Answers]:
    """One pass over a set for all scores but those of the pixels, which make passes of their own.

    A score that fails costs the others nothing: its answers say why it failed.
    """
    predictions: list[Tensor] = []
    confidences: dict[str, list[Tensor]] = {name: [] for name in scorers}
    faults: dict[str, str] = {}
    needs_features = any(scorer.needs_features for scorer in scorers.values())
    batches = track(scoring_batches(images, BATCH), -(-len(images) // BATCH), f"scoring {images.name}", progress)
    with inference(net, precision, needs_features) as run:
        for batch in batches:
            outputs = run(batch)
            predictions.append(outputs.logits.argmax(dim=1).cpu())
            for name, scorer in scorers.items():
                if name in faults:
                    continue
                try:
                    confidences[name].append(_ask(scorer, net, batch, outputs))
                except MacsError as error:
                    faults[name] = str(error)
    predicted = torch.cat(predictions).numpy()
    return {
        name: Answers(predicted, np.empty(0, np.float32), faults[name])
        if name in faults
        else Answers(predicted, torch.cat(parts).numpy())
        for name, parts in confidences.items()
    }


def _ask(scorer: Score, net: nn.Module, batch: Tensor, outputs: Outputs) -> Tensor:
    """A batch's confidences by one score."""
    with blamed(scorer):
        if scorer.needs_pixels:
            found = scorer.from_pixels(net, to_float(batch, device_of(net)))
        else:
            found = scorer.confidence(*outputs)
    if not isinstance(found, Tensor) or found.shape != (len(batch),):
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise MacsError(
            f"The score {type(scorer).__name__} gives {shape} for {len(batch)} images; it must return a tensor with "
            "one confidence per image."
        )
    return found.detach().to("cpu", torch.promote_types(found.dtype, torch.float32))
