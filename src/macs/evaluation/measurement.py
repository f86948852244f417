"""From confidences to results, whoever computed them: a network, a detector or an exported file. It needs no torch.

There are two protocols:

    full     all ID test images against all images of the OOD set
    draws    the paper's: `trials` draws of a fifth of the ID test set and as many OOD images, mean and standard error

The draws resample one network's confidences. Their error says nothing about another training seed.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.spec import same_pixels
from macs.evaluation.histogram import Histogram
from macs.evaluation.protocol import Protocol, drawn_accuracies, drawn_metrics
from macs.evaluation.results import Evaluation, SetResult
from macs.metrics import Reliability, ood_metrics, risk_coverage


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
