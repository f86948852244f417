"""Conformal p-values: the rank of a confidence among the confidences of the calibration images.

For the confidences c_1, ..., c_n of ID images that the network was not trained on,

    p(x) = (1 + #{i : c_i <= c(x)}) / (n + 1).

If a new ID image is exchangeable with the n, then P(p <= a) <= a for every a, whatever the network: at most one ID
image in a hundred has a p-value of 0.01 or less. Nothing is promised about OOD images; a good network gives them small
p-values. Per class, an image is ranked among the calibration images that were predicted as its class.

Vovk, Gammerman, Shafer: Algorithmic Learning in a Random World, 2005.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macs.predictions import Predictions

MOST = 10_000  # confidences kept: 40 kB in the file, and p-values in steps of 0.0001


@dataclass(frozen=True, eq=False)
class PValues:
    """Calibration confidences, ascending within each group: one group for all images, or one per predicted class.

    An instance is called with predictions and returns their p-values.
    """

    confidences: NDArray[np.float32]
    counts: NDArray[np.int64]  # images in each group

    @classmethod
    def of(cls, predictions: Predictions, classes: int, per_class: bool, seed: int = 0) -> "PValues":
        """Keep the confidences of calibration images; if there are more than MOST, a random draw of them."""
        chosen = np.random.default_rng(seed).permutation(len(predictions))[:MOST]
        confidences = predictions.confidence[chosen].astype(np.float32)
        groups = predictions.index[chosen] if per_class else np.zeros(len(chosen), np.int64)
        order = np.lexsort((confidences, groups))
        return cls(confidences[order], np.bincount(groups, minlength=classes if per_class else 1))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.counts.tolist())

    def __call__(self, predictions: Predictions) -> NDArray[np.float32]:
        """Return one p-value per image; a confidence that is NaN ranks below all others."""
        result = np.empty(len(predictions), np.float32)
        ends = np.cumsum(self.counts)
        for index, (count, end) in enumerate(zip(self.counts, ends, strict=True)):
            group = self.confidences[end - count : end]
            members = predictions.index == index if len(self.counts) > 1 else np.ones(len(predictions), bool)
            confidences = predictions.confidence[members]
            below = np.where(np.isnan(confidences), 0, np.searchsorted(group, confidences, side="right"))
            result[members] = (1 + below).astype(np.float32) / np.float32(1 + len(group))
        return result
