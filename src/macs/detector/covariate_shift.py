"""Conformal p-values when the known inputs have shifted since the calibration: weighted by a likelihood ratio.

Calibration inputs x_1, ..., x_n come from P, with confidences c_1, ..., c_n; known inputs now come from Q. With

    w = dQ/dP, up to a constant factor,        p(x) = (w(x) + sum_{i : c_i <= c(x)} w(x_i)) / (w(x) + sum_i w(x_i)).

If x is drawn from Q independently of the n, then P(p(x) <= a) <= a for every a and every n, whatever the classifier is;
calling x OOD if p(x) <= 1 - keep keeps at least the share `keep` of the shifted known inputs. With w = 1 these are the
p-values of `p_values.py`. The conditions:

- w is known. With weights v in its place that were estimated without the n and x, P(p(x) <= a) <= a + d, where d is the
  total variation distance between Q and the distribution that v describes, d = E_P |v / E_P v - w / E_P w| / 2.
- Only the distribution of the inputs has shifted, and Q has no inputs that P cannot have: these have no weight.
- It holds for each input, averaged over calibration sets. Weighted p-values lack the positive dependence that Benjamini
  and Hochberg's procedure needs, so it promises no false discovery rate here (Jin and Candès, 2023).

What is estimated from deployment inputs with unknown ones among them takes these for known: large weights, large
p-values, fewer alarms. `effective_size` says how much calibration is left.

Tibshirani, Foygel Barber, Candès, Ramdas: Conformal Prediction Under Covariate Shift, NeurIPS 2019, Lemma 3.
Lei, Candès: Conformal Inference of Counterfactuals and Individual Treatment Effects, JRSS B 2021 (estimated weights).
"""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macs.core.errors import MacsError
from macs.core.settings import Span
from macs.detector.rows import matrix, plain_array

Numbers = NDArray[np.float64]
STEPS = 50  # of Newton's method, which needs about ten
LARGEST = 50.0  # the logarithm of a weight: exp(50) leaves no other calibration input any influence


def weighted_p_values(
    calibration: ArrayLike, calibration_weights: ArrayLike, confidences: ArrayLike, weights: ArrayLike
) -> Numbers:
    """Return conformal p-values that hold under a covariate shift with these likelihood ratios.

    Parameters
    ----------
    calibration
        Confidences of known inputs that neither the classifier nor the weights were fitted to.
    calibration_weights
        The likelihood ratio w of each of them, up to one factor for all.
    confidences
        Confidences of new inputs; NaN ranks below all others.
    weights
        The likelihood ratio of each new input, with the same factor.

    Returns
    -------
    numpy.ndarray
        One p-value per new input. `p <= 1 - keep` is the verdict OOD that keeps at least `keep` of the known inputs.

    Examples
    --------
    >>> from macs.detector import weighted_p_values
    >>> weighted_p_values([1, 2, 3], [1, 1, 1], [2.5, 0], [1, 1]).tolist()  # no shift: ranks
    [0.75, 0.25]
    >>> weighted_p_values([1, 2, 3], [4, 1, 0], [2.5, 0], [1, 1]).round(2).tolist()
    [1.0, 0.17]
    """
    known, new = (_column(values, what) for values, what in ((calibration, "calibration"), (confidences, "new")))
    before, now = _weights(calibration_weights, known, "calibration"), _weights(weights, new, "new")
    if np.isnan(known).any():
        raise MacsError(
            "Some calibration confidences are not numbers (NaN); look at the classifier's outputs for them."
        )
    if not before.sum() > 0:
        raise MacsError(
            "All calibration weights are 0: no calibration input can occur after this shift; calibrate anew."
        )
    order = np.argsort(known, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(before[order])])
    count = np.where(np.isnan(new), 0, np.searchsorted(known[order], new, side="right"))
    p_values: Numbers = (now + sums[count]) / (now + sums[-1])
    return p_values


def effective_size(weights: ArrayLike) -> float:
    """Return (sum w)^2 / sum w^2: as many equally weighted inputs would estimate an average about as well.

    Examples
    --------
    >>> from macs.detector import effective_size
    >>> effective_size([1, 1, 1, 1]), effective_size([1, 0, 0, 0])
    (4.0, 1.0)
    """
    values = _numbers(weights, "weights")
    return float(values.sum() ** 2 / np.square(values).sum()) if values.any() else 0.0


@dataclass(frozen=True, eq=False)
class LikelihoodRatio:
    """An estimate of w = dQ/dP, from a classifier that tells inputs of P from inputs of Q.

    A logistic regression on standardised inputs gives log w(x) = b + a . x, up to a constant. It is right where the two
    distributions differ in this form, as two Gaussians of one covariance do. Any other classifier gives weights, too:
    p / (1 - p), for its probability p that an input comes from Q.

    Examples
    --------
    >>> import numpy as np
    >>> from macs.detector import LikelihoodRatio
    >>> random = np.random.default_rng(0)
    >>> ratio = LikelihoodRatio.between(random.normal(0, 1, (500, 2)), random.normal(1, 1, (500, 2)))
    >>> weights = ratio([[0, 0], [1, 1]])
    >>> bool(weights[0] < weights[1])
    True
    """

    mean: Numbers
    scale: Numbers
    slope: Numbers
    intercept: float

    @classmethod
    def between(cls, before: ArrayLike, after: ArrayLike, ridge: Annotated[float, Span(0, 1000)] = 1e-3) -> Self:
        """Estimate the ratio from inputs or features of two times, N x D and M x D.

        Parameters
        ----------
        before
            Known inputs from the time of the calibration, but not those that p-values are computed from.
        after
            Known inputs of today; unknown ones among them would be taken for known. They need no labels.
        ridge
            Penalty on the squared slopes of the standardised inputs, beside the mean log loss.

        Returns
        -------
        LikelihoodRatio
            A function from inputs to weights.
        """
        old, new = _table(before, "before"), _table(after, "after")
        if old.shape[1] != new.shape[1]:
            raise MacsError(f"Inputs before have {old.shape[1]} columns, but those after have {new.shape[1]}.")
        Span(0, 1000).hold("ridge", ridge)
        rows = np.concatenate([old, new])
        mean, scale = rows.mean(0), rows.std(0)
        scale = np.where(scale > 0, scale, 1.0)
        design = np.column_stack([(rows - mean) / scale, np.ones(len(rows))])
        is_new = np.arange(len(rows)) >= len(old)
        *slope, intercept = _logistic(design, is_new, ridge)
        return cls(mean, scale, np.array(slope), float(intercept))

    def __call__(self, inputs: ArrayLike) -> Numbers:
        """Return one weight per input."""
        rows = _table(inputs, "to weigh")
        if rows.shape[1] != len(self.slope):
            raise MacsError(
                f"The ratio was estimated on {len(self.slope)} columns, but these inputs have {rows.shape[1]}."
            )
        return np.exp(np.clip((rows - self.mean) / self.scale @ self.slope + self.intercept, -LARGEST, LARGEST))


def _logistic(design: Numbers, positive: NDArray[np.bool_], ridge: float) -> Numbers:
    """Return the coefficients of a logistic regression by Newton's method; the last column is not penalised."""
    penalty = np.full(design.shape[1], ridge)
    penalty[-1] = 0
    beta = np.zeros(design.shape[1])

    def loss(at: Numbers) -> float:
        margins = np.where(positive, 1, -1) * (design @ at)
        return float(np.logaddexp(0, -margins).mean() + penalty @ np.square(at) / 2)

    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ beta, -LARGEST, LARGEST)))
        gradient = design.T @ (p - positive) / len(design) + penalty * beta
        curvature = design.T @ (design * (p * (1 - p))[:, None]) / len(design) + np.diag(penalty + 1e-12)
        step = np.linalg.solve(curvature, gradient)
        size = 1.0
        while size > 1e-6 and loss(beta - size * step) > loss(beta):
            size /= 2
        beta = beta - size * step
        if np.abs(size * step).max() < 1e-8:
            break
    return beta


def _numbers(values: ArrayLike, what: str) -> Numbers:
    try:
        return np.asarray(plain_array(values), np.float64)
    except (ValueError, TypeError):
        raise MacsError(f"The {what} must be an array of numbers.") from None


def _column(values: ArrayLike, what: str) -> Numbers:
    column = _numbers(values, f"{what} confidences")
    if column.ndim != 1:
        raise MacsError(f"The {what} confidences have the shape {column.shape}; give one number per input.")
    return column


def _weights(values: ArrayLike, confidences: Numbers, what: str) -> Numbers:
    weights = _numbers(values, f"{what} weights")
    if weights.shape != confidences.shape:
        raise MacsError(
            f"There are {len(confidences)} {what} confidences but weights of shape {weights.shape}; give one each."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise MacsError(f"Some {what} weights are negative or not finite; a likelihood ratio is a number from 0 up.")
    return weights


def _table(values: ArrayLike, what: str) -> Numbers:
    table = matrix(values, f"The inputs {what}").astype(np.float64)
    if not len(table):
        raise MacsError(f"There are no inputs {what}; give one row per input, N x D.")
    if not np.isfinite(table).all():
        raise MacsError(f"Some inputs {what} hold numbers that are not finite; leave these rows out.")
    return table
