"""OODDetector: a FeatureDetector behind scikit-learn's interface for outlier detection.

    detector = OODDetector("mahalanobis").fit(X, y)
    detector.predict(X_new)                                        # +1 known, -1 unknown
    make_pipeline(StandardScaler(), OODDetector()).fit(X)
    OODDetector(estimator=LogisticRegression()).fit(X, y)          # scores the logits of a classifier

`calibration` says on which rows the threshold is found, and that decides what it promises for a new known row, if it is
exchangeable with the rows of `fit`:

    a share, such as 0.25     a split: the rows held out have no part in the score. Kept with probability >= `keep_`.
    a number of folds, as 5   every row is ranked by a score that is fitted to the other folds, and the score in use is
                              fitted to all rows. No finite-sample promise: `keep` holds as far as a score of a few more
                              rows ranks like one of a few fewer. It uses every row twice, for where rows are few.

In a Pipeline, the steps before the detector are fitted to all rows, those held out too, and the promise does not cover
that; a scaler hardly matters, but a step that adapts to its rows more belongs into `estimator`.
"""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError

try:
    from sklearn.base import BaseEstimator, OutlierMixin, clone
    from sklearn.exceptions import NotFittedError
    from sklearn.metrics import roc_auc_score
    from sklearn.utils import _safe_indexing, check_random_state, get_tags
    from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise MacsError(
        "macs.sklearn needs scikit-learn 1.6 or later, which is not installed: pip install 'macs-ood[sklearn]'."
    ) from None

from macs import scores
from macs.detector import FeatureDetector
from macs.detector.calibration import ROWS, PValues, calibrate, images_needed, share_to_keep
from macs.detector.rows import Rows
from macs.predictions import Predictions, joined
from macs.scores import Score

__all__ = ["OODDetector", "auroc"]

UNKNOWN = -1  # in y: a row of no known class, as a label of scikit-learn's outlier detectors
NEIGHBOURS = 10  # of the score without an estimator
Positions = NDArray[np.int64]


class OODDetector(OutlierMixin, BaseEstimator):
    """Tell known rows from unknown ones, with a threshold that keeps a stated share of new known rows.

    Parameters
    ----------
    ood_score
        Name of a score, a sum such as "energy+knn", or a `Score`. By default the distance to the tenth nearest row or,
        with an estimator, its largest probability (msp).
    settings
        Settings of the score, such as `{"k": 5}`.
    estimator
        A classifier whose `decision_function`, or else `predict_proba`, gives the logits. One that is fitted is used as
        it is, and then `fit` needs rows that it was not trained on; any other is cloned and fitted with `y`.
    keep
        Share of new known rows to keep.
    calibration
        The share of the rows to hold out for the threshold, or a number of folds (see `macs.sklearn`).
    random_state
        Seed of the split or of the folds.

    Attributes
    ----------
    detector_ : FeatureDetector
        The detector itself, which has p-values and can be saved and exported.
    offset_ : float
        The threshold: `decision_function` is `score_samples` minus this.
    keep_ : float
        The share that the threshold is for: `keep`, or less where the rows are too few for it.
    estimator_
        The fitted classifier, if there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from macs.sklearn import OODDetector
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> detector = OODDetector(random_state=0).fit(X)
    >>> detector.predict([[0, 0, 0], [9, 9, 9]]).tolist()
    [1, -1]
    """

    detector_: FeatureDetector
    estimator_: Any
    keep_: float
    offset_: float

    def __init__(
        self,
        ood_score: str | Score | None = None,
        *,
        settings: dict[str, Any] | None = None,
        estimator: Any = None,
        keep: float = 0.95,
        calibration: float | int = 0.25,
        random_state: Any = None,
    ) -> None:
        self.ood_score = ood_score
        self.settings = settings
        self.estimator = estimator
        self.keep = keep
        self.calibration = calibration
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that rows for the estimator alone may be sparse, and that fitting it takes y."""
        tags = super().__sklearn_tags__()
        if self.estimator is not None:
            tags.target_tags.required = not self._is_prefit()
            tags.input_tags = get_tags(self.estimator).input_tags if self._reads_logits_alone() else tags.input_tags
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the score, and the estimator if it is not fitted, and calibrate the threshold.

        Parameters
        ----------
        X
            Known rows, N x D. With an estimator and a score of its logits, anything that the estimator takes.
        y
            Their classes, for an estimator and for scores that are fitted class by class; without them, all rows are of
            one class. Rows labelled -1 are unknown and left out.

        Returns
        -------
        OODDetector
            The detector itself.
        """
        share_to_keep(self.keep)
        X = self._validated(X, reset=True)
        labels = None if y is None else column_or_1d(y)
        rows = np.arange(_num_samples(X))
        if labels is not None:
            if len(labels) != len(rows):
                raise MacsError(f"X has {len(rows)} rows, but y has {len(labels)} labels.")
            if labels.dtype.kind == "f" and not np.isfinite(labels).all():
                raise MacsError("y holds labels that are not numbers; label unknown rows -1.")
            rows = np.flatnonzero(labels != UNKNOWN) if labels.dtype.kind in "iuf" else rows
        if len(rows) < 2:
            raise MacsError(f"There are {len(rows)} known rows (n_samples = {len(rows)}), but at least 2 are needed.")
        order = check_random_state(self.random_state).permutation(rows)
        if isinstance(self.calibration, Integral):
            self._cross(X, labels, order, int(self.calibration))
        else:
            self._split(X, labels, order, self.calibration)
        self.offset_ = float(self.detector_.thresholds())
        if self._reads_logits_alone() and hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def _split(self, X: Any, labels: Any, order: Positions, share: float) -> None:
        """Fit to some of the rows and calibrate on the others."""
        if not isinstance(share, Real) or not 0 < share < 1:
            raise MacsError(f"calibration must be a share between 0 and 1, or a number of folds, not {share!r}.")
        held_out = min(max(round(len(order) * float(share)), 1), len(order) - 1)
        nothing_to_fit = self._is_prefit() and self._make_score().fitted_to == "nothing"
        train = order[held_out:]
        rest = order if nothing_to_fit else order[:held_out]
        self.estimator_ = self._fitted_estimator(X, labels, train)
        detector = self._fitted_detector(X, labels, train)
        self.keep_ = self._possible(len(rest))
        self.detector_ = detector.calibrate(self._rows(X, labels, rest), keep=self.keep_)

    def _cross(self, X: Any, labels: Any, order: Positions, folds: int) -> None:
        """Rank every row by a score that is fitted to the other folds; the score in use is fitted to all."""
        if not 2 <= folds <= len(order):
            raise MacsError(f"calibration must be from 2 to {len(order)} folds, the number of rows, not {folds}.")
        parts = np.array_split(order, folds)
        found = []
        for part in parts:
            train = np.setdiff1d(order, part)
            self.estimator_ = self._fitted_estimator(X, labels, train)
            found.append(self._fitted_detector(X, labels, train).ask(self._rows(X, labels, part)))
        predictions = joined(found)
        self.estimator_ = self._fitted_estimator(X, labels, order)
        detector = self._fitted_detector(X, labels, order)
        self.keep_ = self._possible(len(order))
        p_values = PValues.of(predictions, 1, per_class=False)
        record = calibrate(
            predictions.confidence,
            predictions.index,
            None,
            detector.classes,
            keep=self.keep_,
            per_class=False,
            score=scores.name_of(detector.score),
            data=f"{folds} folds of the training data",
            ranked=p_values.sizes,
            unit=ROWS,
        )
        self.detector_ = detector._with(calibration=record, p_values=p_values)

    def _possible(self, rows: int) -> float:
        """The share that so many calibration rows can promise to keep, with a warning if it is less than `keep`."""
        if rows >= (needed := images_needed(self.keep)):
            return self.keep
        least = int(1_000_000 * rows / (rows + 1)) / 1_000_000
        warn(
            f"To keep {self.keep} takes {needed} calibration rows or more, but there are {rows}; the lowest confidence "
            f"among them becomes the threshold, which promises {least:.3f}."
        )
        return least

    def _make_score(self) -> Score:
        settings = self.settings or {}
        if self.ood_score is not None:
            return scores.get(self.ood_score, **settings)
        if self.estimator is not None:
            return scores.get("msp", **settings)
        return scores.get("knn", **{"k": NEIGHBOURS, "normalise": False, **settings})

    def _is_prefit(self) -> bool:
        try:
            check_is_fitted(self.estimator)
        except (NotFittedError, TypeError):
            return False
        return True

    def _fitted_estimator(self, X: Any, labels: Any, train: Positions) -> Any:
        if self.estimator is None or self._is_prefit():
            return self.estimator
        if labels is None:
            raise MacsError(f"{self.estimator} is not fitted yet, which takes y; give the classes of the rows.")
        return clone(self.estimator).fit(_safe_indexing(X, train), labels[train])

    def _fitted_detector(self, X: Any, labels: Any, train: Positions) -> FeatureDetector:
        """A detector that is not calibrated; scores of a classifier's logits may have nothing to learn."""
        classes = [] if self.estimator is None else self.estimator_.classes_.tolist()
        detector = FeatureDetector(self._make_score(), classes=classes)
        return detector.fit(self._rows(X, labels, train), rows=0)

    def _rows(self, X: Any, labels: Any = None, index: Positions | None = None) -> Rows:
        """The arrays that the detector takes: the rows themselves, or the outputs of the estimator, or both."""
        part = X if index is None else _safe_indexing(X, index)
        arrays: dict[str, Any] = {} if self._reads_logits_alone() else {"features": part}
        if self.estimator is not None:
            arrays |= outputs_of(self.estimator_, part)
        if index is not None and self._make_score().labelled:
            arrays["labels"] = self._numbers(labels, index)
        return Rows.of(arrays, name="X")

    def _numbers(self, labels: Any, index: Positions) -> Positions:
        """The classes of rows as numbers; without labels, all rows are of one class."""
        if labels is None:
            return np.zeros(len(index), np.int64)
        classes = np.unique(labels[labels != UNKNOWN]) if self.estimator is None else self.estimator_.classes_
        numbers: Positions = np.searchsorted(classes, labels[index])
        return numbers

    def _reads_logits_alone(self) -> bool:
        return self.estimator is not None and self._make_score().reads == "logits"

    def _validated(self, X: Any, reset: bool) -> Any:
        """The rows as an array of numbers; where only the estimator sees them, as they are."""
        if self._reads_logits_alone():
            return X
        if self.estimator is None and self._make_score().reads == "logits":
            name = self._make_score().written
            raise MacsError(f"{name} judges the logits of a classifier; give estimator=, or take knn or mahalanobis.")
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Return the confidence of each row, higher for known rows."""
        return self._predictions(X).confidence.astype(np.float64)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return confidence minus threshold: 0 or more for rows that are called known."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return +1 for each row that is called known, and -1 for the others."""
        return np.where(self.decision_function(X) >= 0, 1, UNKNOWN)

    def fit_predict(self, X: Any, y: Any = None, **_: Any) -> NDArray[np.int64]:
        """Fit to rows and judge the same rows; those that the score was fitted to look more known than new ones."""
        return self.fit(X, y).predict(X)

    def p_values(self, X: Any) -> NDArray[np.float64]:
        """Return the conformal p-value of each row, small for unknown rows."""
        return self._predictions(X).p_value.astype(np.float64)

    def _predictions(self, X: Any) -> Predictions:
        check_is_fitted(self, "detector_")
        rows = self._rows(self._validated(X, reset=False)).matched(self.detector_.accepted)
        return self.detector_.asked(rows)[0]


def outputs_of(estimator: Any, X: Any) -> dict[str, NDArray[np.float64]]:
    """The outputs of a fitted classifier under the name of what they are: logits or probabilities, N x K."""
    count = len(estimator.classes_)
    if hasattr(estimator, "decision_function"):
        logits = np.asarray(estimator.decision_function(X), np.float64)
        if logits.ndim == 1:
            logits = np.column_stack([-logits, logits]) / 2  # the same softmax, and no class has a larger energy
        if logits.shape[1] == count:
            return {"logits": logits}
    if hasattr(estimator, "predict_proba"):
        return {"probabilities": np.asarray(estimator.predict_proba(X), np.float64)}
    raise MacsError(
        f"{estimator} gives neither one decision value nor one probability per class; take a classifier with "
        "decision_function (for SVC with decision_function_shape='ovr') or predict_proba."
    )


def auroc(estimator: Any, X: Any, y: Any) -> float:
    """Score a detector in `cross_val_score(..., scoring=auroc)`: y is -1 for unknown rows, and the class of others.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from macs.sklearn import OODDetector, auroc
    >>> random = np.random.default_rng(0)
    >>> X = np.concatenate([random.normal(size=(300, 2)), random.normal(8, 1, size=(50, 2))])
    >>> y, order = np.repeat([0, -1], [300, 50]), random.permutation(350)
    >>> cross_val_score(OODDetector(random_state=0), X[order], y[order], scoring=auroc, cv=3).round(2).tolist()
    [1.0, 1.0, 1.0]
    """
    is_known = np.asarray(y) != UNKNOWN
    if is_known.all() or not is_known.any():
        raise MacsError("An AUROC compares known rows with unknown ones; label the unknown ones -1 in y.")
    return float(roc_auc_score(is_known, estimator.decision_function(X)))
