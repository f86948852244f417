"""Whether class probabilities can be taken at their word, and the temperature that makes them so.

Of the predictions with a probability of about 80%, 80% should be right. The expected calibration error (ECE) says by
how much that fails: with the predictions in 15 bins of equal width by their probability p_i,

    ECE = sum_b n_b / n * | mean of p_i in b - share of right predictions in b |.

Temperature scaling divides the logits by one number, which changes no prediction and no verdict:

    p(k | x) = softmax(z / T)_k,        T minimises - sum_i log p(y_i | x_i) over labelled images.

If every prediction is right, the likelihood grows without bound as T falls, and there is no such T.

Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, ICML 2017.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError

BINS = 15  # theirs
LOWEST, HIGHEST = 1e-4, 1e4  # temperatures; logits that are cosines need about 0.01


@dataclass(frozen=True)
class Reliability:
    """The ECE of a network's class probabilities on ID test images, as they are and with a temperature."""

    ece: float
    temperature: float | None = None
    ece_scaled: float | None = None  # with the temperature
    fitted_to: str = ""  # the images that the temperature is fitted to; empty if there is none

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        before = f"expected calibration error (ECE) of the class probabilities {100 * self.ece:.2f}%"
        if self.temperature is None or self.ece_scaled is None:
            return before
        return (
            f"{before}; {100 * self.ece_scaled:.2f}% with the temperature {self.temperature:.4g}, fitted to "
            f"{self.fitted_to}"
        )


def expected_calibration_error(correct: Any, probabilities: Any, bins: int = BINS) -> float:
    """Compute the expected calibration error.

    Parameters
    ----------
    correct
        Whether each prediction is right.
    probabilities
        The probability that the network gives to each prediction.
    bins
        Number of bins of equal width.

    Returns
    -------
    float
        The error, a share between 0 and 1.

    Examples
    --------
    >>> import macs
    >>> round(macs.metrics.expected_calibration_error([True, True, False, True], [0.9, 0.9, 0.9, 0.6]), 3)
    0.275
    """
    right, values = np.asarray(correct, np.float64), np.asarray(probabilities, np.float64)
    if right.shape != values.shape or right.ndim != 1 or not len(right):
        raise MacsError(
            f"An ECE needs one probability per prediction, but there are {right.shape} predictions and {values.shape} "
            "probabilities."
        )
    if not ((values >= 0) & (values <= 1 + 1e-6)).all():
        raise MacsError("A probability lies outside 0 to 1, so there is no ECE; give those after the softmax.")
    bin_of = np.clip(np.ceil(values * bins).astype(int) - 1, 0, bins - 1)  # each bin holds its upper end
    gaps = np.bincount(bin_of, values, bins) - np.bincount(bin_of, right, bins)
    return float(np.abs(gaps).sum() / len(right))


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float | None:
    """Find the temperature T that minimises the cross-entropy of logits / T; None if every prediction is right."""
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    z: NDArray[np.float64] = np.asarray(logits, np.float64)
    y: NDArray[np.int64] = np.asarray(labels, np.int64)
    if not len(z) or (z.argmax(axis=1) == y).all():
        return None
    z = z - z.max(axis=1, keepdims=True)
    own = z[np.arange(len(z)), y]

    def cross_entropy(log_temperature: float) -> float:
        inverse = np.exp(-log_temperature)
        return float(np.mean(logsumexp(z * inverse, axis=1) - own * inverse))

    found = minimize_scalar(cross_entropy, bounds=tuple(np.log([LOWEST, HIGHEST])), method="bounded")
    return float(np.exp(found.x))
