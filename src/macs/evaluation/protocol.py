"""The paper's protocol and its settings: which images an evaluation draws. It needs no torch.

The paper measures random draws: a share of the ID test images against as many OOD images. The spread over draws comes
from the choice of test images; it says nothing about another training run.
"""

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.settings import Span, check
from macs.metrics import FprRule, OODMetrics, as_array, ood_metrics


class Draw(NamedTuple):
    """The positions of one trial's images in the ID test set and in an OOD set."""

    known: NDArray[np.int64]
    unknown: NDArray[np.int64]


@dataclass(frozen=True)
class Protocol:
    """The number and size of the draws, and the threshold of FPR95; a standard error needs two draws."""

    trials: Annotated[int, Span(2, 10_000)] = 10
    share: Annotated[float, Span(0, 1, open="least")] = 0.2  # of the ID test set in a draw
    seed: Annotated[int, Span(0, 2**63 - 1)] = 0
    fpr_rule: FprRule = "first"

    def __post_init__(self) -> None:
        check(self)

    def size(self, known: int) -> int:
        """The number of ID images in a draw from `known` images."""
        return max(1, int(self.share * known))

    def draw(self, trial: int, known: int, unknown: int = 0) -> Draw:
        """The images of one trial, none twice, out of `known` ID and `unknown` OOD images.

        They depend only on the seed, the trial and the sizes of the sets, so that networks and scores are compared on
        the same images; the ID images are the same for every OOD set.
        """
        random = np.random.default_rng((self.seed, trial))
        size = self.size(known)
        id_images = random.choice(known, size, replace=False, shuffle=False)
        return Draw(id_images, random.choice(unknown, min(size, unknown), replace=False, shuffle=False))


def drawn_metrics(conf_in: Any, conf_out: Any, protocol: Protocol | None = None) -> list[OODMetrics]:
    """The metrics of each draw."""
    protocol = protocol or Protocol()
    conf_in, conf_out = as_array(conf_in, "ID"), as_array(conf_out, "OOD")
    draws = (protocol.draw(trial, len(conf_in), len(conf_out)) for trial in range(protocol.trials))
    return [ood_metrics(conf_in[draw.known], conf_out[draw.unknown], protocol.fpr_rule) for draw in draws]


def drawn_accuracies(correct: NDArray[np.bool_], protocol: Protocol) -> list[float]:
    """The accuracy in each draw, on the same ID images as the metrics."""
    return [float(correct[protocol.draw(trial, len(correct)).known].mean()) for trial in range(protocol.trials)]


def check_fit_images(fit_images: int) -> None:
    """Refuse a negative number of training images to fit scores to."""
    if fit_images < 0:
        raise MacsError(f"The number of training images to fit to must be 0 (for all) or more, not {fit_images}.")
