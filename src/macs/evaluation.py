"""A network and image sets -> a table: how well its confidence tells known from unknown images.

Each set passes through the network once; every number comes from those confidences. Two protocols are reported apart:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from macs import scores
from macs.data import ImageSet
from macs.data.batches import scoring_batches
from macs.errors import MacsError
from macs.inference import BATCH, inference
from macs.metrics import METRICS, FprRule, OODMetrics, drawn_metrics, mean_and_error, ood_metrics
from macs.progress import track


@dataclass(frozen=True)
class Answers:
    """What a network says of a set of images: one prediction and one confidence each."""

    predictions: NDArray[np.int64]
    confidences: NDArray[np.float32]


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
            "conventions": {
                "unit": "shares between 0 and 1",
                "confidence": f"{self.score}; higher means ID",
                "auroc": "the same whichever class is positive",
                "aupr": "OOD positive, average precision",
                "fpr95": "OOD positive: share of ID images flagged when 95% of OOD images are caught",
                "aupr_id": "ID positive, average precision",
                "fpr95_id": "ID positive: share of OOD images accepted when 95% of ID images are kept",
                "fpr_rule": f"{self.fpr_rule} threshold",
                "error": "standard error over draws (ddof 1); draws resample one network's confidences",
            },
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
        from macs.tables import evaluation_tables

        return evaluation_tables(self)

    def __str__(self) -> str:
        from macs.tables import plain_text

        return plain_text(self)


def evaluate(
    net: nn.Module,
    test: ImageSet,
    ood: Mapping[str, ImageSet],
    *,
    score: str = "msp",
    trials: int = 10,
    share: float = 0.2,
    seed: int = 0,
    fpr_rule: FprRule = "first",
    precision: str = "auto",
    progress: bool = True,
) -> Evaluation:
    """Score the ID test set and each OOD set once, and measure how well the confidences separate them."""
    if test.labels is None:
        raise MacsError(f"{test.name} has no labels to measure accuracy with; a folder needs one sub-folder a class.")
    if not ood:
        raise MacsError("There is no OOD set to evaluate on; name at least one.")
    if trials < 2 or not 0 < share <= 1:
        raise MacsError(f"The draws need at least 2 trials and a share in (0, 1], not {trials} and {share}.")
    known = run_net(net, test, score, precision, progress)
    correct = known.predictions == test.labels
    results = []
    for name, images in ood.items():
        conf_in, conf_out = known.confidences, run_net(net, images, score, precision, progress).confidences
        draws = drawn_metrics(conf_in, conf_out, share=share, trials=trials, seed=seed, fpr_rule=fpr_rule)
        results.append(SetResult(name, len(images), ood_metrics(conf_in, conf_out, fpr_rule=fpr_rule), draws))
    random = np.random.default_rng(seed)
    drawn = max(1, int(len(test) * share))
    return Evaluation(
        id=test.name,
        images=len(test),
        score=score,
        fpr_rule=fpr_rule,
        share=share,
        accuracy=float(correct.mean()),
        draw_accuracies=[float(random.choice(correct, drawn, replace=False).mean()) for _ in range(trials)],
        sets=results,
    )


def run_net(net: nn.Module, images: ImageSet, score: str, precision: str = "auto", progress: bool = False) -> Answers:
    """One pass over a set: a prediction and a confidence for each image."""
    scorer = scores.get(score)
    predictions, confidences = [], []
    batches = track(scoring_batches(images, BATCH), -(-len(images) // BATCH), f"scoring {images.name}", progress)
    with inference(net, precision, scorer.needs_features) as run:
        for batch in batches:
            logits, features = run(batch)
            predictions.append(logits.argmax(dim=1).cpu())
            confidences.append(scorer.confidence(logits, features).cpu())
    if broken := sum(int(part.isnan().sum()) for part in confidences):
        raise MacsError(f"The network gives {broken} images of {images.name} a confidence that is not a number.")
    return Answers(torch.cat(predictions).numpy(), torch.cat(confidences).numpy())
