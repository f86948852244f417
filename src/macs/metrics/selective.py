"""Selective classification: how often the classifier is right if it answers only where it is confident.

The images with the highest confidences are answered, the others are handed to a person. With n ID images in descending
order of confidence and e_i = 1 where the i-th prediction is wrong,

    coverage(k) = k / n,    risk(k) = 1/k * sum_{i <= k} e_i,    AURC = 1/n * sum_k risk(k)

AURC is the area under the curve of risk against coverage: lower is better, and its value for a confidence that says
nothing is the error rate. Images of equal confidence count with their mean error, so that their order does not matter.

Geifman, El-Yaniv: Selective Classification for Deep Neural Networks, NeurIPS 2017.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError


@dataclass(frozen=True)
class RiskCoverage:
    """The curve of risk against coverage: the share of wrong predictions among the k most confident, for every k."""

    risk: NDArray[np.float64]

    @property
    def coverage(self) -> NDArray[np.float64]:
        return np.arange(1, len(self.risk) + 1) / len(self.risk)

    @property
    def aurc(self) -> float:
        return float(self.risk.mean())

    def at(self, points: int) -> dict[str, list[float]]:
        """Return the curve at so many coverages at equal distances, or at all of them if there are fewer."""
        count = len(self.risk)
        places = np.unique(np.ceil(np.arange(1, points + 1) * count / points - 1e-9).astype(int)) - 1
        return {"coverage": self.coverage[places].tolist(), "risk": self.risk[places].tolist()}

    def accuracy_at(self, coverage: float) -> float:
        """Return the accuracy on the most confident images that make up at least this share."""
        if not 0 < coverage <= 1:
            raise MacsError(f"A coverage must be above 0 and at most 1, not {coverage:g}.")
        return 1 - float(self.risk[math.ceil(coverage * len(self.risk) - 1e-9) - 1])


def risk_coverage(correct: Any, confidences: Any) -> RiskCoverage:
    """Compute the curve of risk against coverage.

    Parameters
    ----------
    correct
        Whether the prediction for each ID image is right.
    confidences
        Their confidences, higher where the classifier is surer.

    Returns
    -------
    RiskCoverage
        The curve, its area `aurc`, and `accuracy_at(coverage)`.

    Examples
    --------
    >>> import macs
    >>> curve = macs.metrics.risk_coverage([True, True, False, True], [0.9, 0.8, 0.6, 0.4])
    >>> curve.accuracy_at(0.5), curve.accuracy_at(1)
    (1.0, 0.75)
    """
    right, values = np.asarray(correct, bool), np.asarray(confidences, np.float64)
    if right.shape != values.shape or right.ndim != 1 or not len(right):
        raise MacsError(
            f"Risk and coverage need one confidence per prediction, but there are {right.shape} predictions and "
            f"{values.shape} confidences."
        )
    if np.isnan(values).any():
        raise MacsError("A confidence is not a number, so images cannot be ordered by it; leave such images out.")
    _, group, sizes = np.unique(-values, return_inverse=True, return_counts=True)
    wrong = np.bincount(group, ~right, len(sizes))
    ends, errors = np.cumsum([0, *sizes]), np.cumsum([0.0, *wrong])
    answered = np.arange(1, len(right) + 1)
    return RiskCoverage(np.interp(answered, ends, errors) / answered)
