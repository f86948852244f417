"""Verdicts label by label, for classifiers whose outputs are independent sigmoids.

Whether a row is known at all is one question: `FeatureDetector("joint-energy")`. Which labels it has is another. For
each label k, the logits z_k of the calibration rows that have the label give a conformal threshold tau_k, and

    label k is reported if z_k >= tau_k.

If a new row that has label k is exchangeable with those, then P(k is reported) >= keep, as in `calibration.py`,
averaged over calibration sets. That bounds the misses of each label; labels that a row does not have may be reported.
A fixed limit such as sigmoid(z_k) >= 0.5 promises neither.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.data.compatibility import few
from macs.detector.calibration import Threshold, conformal_threshold, images_needed, rank, share_to_keep
from macs.detector.rows import in_float32, matrix, plain_array


@dataclass(frozen=True)
class LabelThresholds:
    """One threshold per label, on its logit; make them with `LabelThresholds.of` and call them with logits.

    Examples
    --------
    >>> import numpy as np
    >>> from macs.detector import LabelThresholds
    >>> random = np.random.default_rng(0)
    >>> labels = random.integers(0, 2, (400, 3))
    >>> thresholds = LabelThresholds.of(random.normal(4 * labels - 2, 1), labels, keep=0.9)
    >>> thresholds([[3, -3, 3]]).tolist()
    [[True, False, True]]
    """

    keep: float
    thresholds: tuple[Threshold, ...]

    @classmethod
    def of(cls, logits: ArrayLike, labels: ArrayLike, keep: float = 0.95, names: tuple[str, ...] = ()) -> Self:
        """Find the thresholds.

        Parameters
        ----------
        logits
            N x K, of rows that the classifier was not trained on.
        labels
            N x K zeros and ones: which labels each row has.
        keep
            Share of the new rows with a label that are reported to have it.
        names
            Names of the labels; by default numbers.

        Returns
        -------
        LabelThresholds
            A function from logits N x K to an N x K array that says which labels are reported.
        """
        share_to_keep(keep)
        values, present = _table(logits), np.asarray(plain_array(labels))
        if values.shape != present.shape or not np.isin(present, (0, 1)).all():
            raise MacsError(
                f"Labels must be zeros and ones of the shape of the logits, {values.shape}, but they are "
                f"{present.dtype} of shape {present.shape}."
            )
        names = names or tuple(map(str, range(values.shape[1])))
        if len(names) != values.shape[1]:
            raise MacsError(f"There are {values.shape[1]} labels but {len(names)} names; give one name per label.")
        columns = [values[present[:, label] == 1, label] for label in range(values.shape[1])]
        if short := [
            f"{name} ({len(own)})" for name, own in zip(names, columns, strict=True) if rank(len(own), keep) < 1
        ]:
            raise MacsError(
                f"To keep {keep} takes at least {images_needed(keep)} rows with each label, but these have fewer: "
                f"{few(short)}; add rows, or keep less."
            )
        return cls(keep, tuple(conformal_threshold(own, keep, name) for own, name in zip(columns, names, strict=True)))

    def __call__(self, logits: ArrayLike) -> NDArray[np.bool_]:
        """Return which labels are reported for each row, N x K."""
        values = _table(logits)
        if values.shape[1] != len(self.thresholds):
            raise MacsError(f"There are {len(self.thresholds)} labels, but these rows have {values.shape[1]} logits.")
        return values >= np.array([threshold.value for threshold in self.thresholds], np.float32)


def _table(logits: ArrayLike) -> NDArray[np.float32]:
    values = in_float32(matrix(logits, "The logits"))
    if np.isnan(values).any():
        raise MacsError("Some logits are not numbers (NaN); leave these rows out.")
    return values
