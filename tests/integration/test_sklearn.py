"""OODDetector: scikit-learn's own checks, its tools around a detector, and the share that is kept."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

import macs
from macs import MacsError
from macs.core.errors import MacsWarning
from macs.sklearn import OODDetector, auroc


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("detector", [OODDetector(random_state=0), OODDetector("mahalanobis", calibration=3)])
def test_scikit_learn_finds_nothing_to_object_to(detector: OODDetector) -> None:
    results = check_estimator(detector, on_skip=None)
    assert {"check_outliers_train", "check_outliers_fit_predict"} <= {each["check_name"] for each in results}


FOLDS = StratifiedKFold(3, shuffle=True, random_state=0)


def wine(unknown: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A table whose last class is labelled as unknown."""
    data = load_wine()
    return StandardScaler().fit_transform(data.data), np.where(data.target == unknown, -1, data.target)


def test_a_pipeline_is_cross_validated_and_searched() -> None:
    X, y = wine()
    pipeline = make_pipeline(StandardScaler(), OODDetector(keep=0.9, random_state=0))
    assert cross_val_score(pipeline, X, y, scoring=auroc, cv=FOLDS).min() > 0.9
    binary = np.where(y == -1, -1, 1)
    assert cross_val_score(pipeline, X, binary, scoring="roc_auc", cv=FOLDS).min() > 0.9
    search = GridSearchCV(pipeline, {"ooddetector__ood_score": ["knn", "mahalanobis"]}, scoring=auroc, cv=FOLDS)
    assert search.fit(X, y).best_score_ > 0.9
    copy = clone(pipeline)
    assert copy.get_params()["ooddetector__random_state"] == 0


def test_the_default_is_the_distance_to_the_tenth_nearest_row() -> None:
    X, _ = wine()
    detector = OODDetector(random_state=0).fit(X)
    held_out = np.random.RandomState(0).permutation(len(X))[: round(len(X) / 4)]
    bank = np.delete(X, held_out, axis=0)
    distances = NearestNeighbors(n_neighbors=10).fit(bank).kneighbors(X)[0][:, -1]
    np.testing.assert_allclose(detector.score_samples(X), -distances, rtol=1e-5, atol=1e-3)
    assert detector.detector_.calibration.images == len(held_out)
    assert detector.offset_ == pytest.approx(np.sort(-distances[held_out])[int((len(held_out) + 1) * 0.05) - 1])


@pytest.mark.parametrize("calibration", [0.25, 4])
def test_rows_that_are_labelled_unknown_are_left_out(calibration: float) -> None:
    X, y = wine()
    once = OODDetector(calibration=calibration, random_state=0).fit(X, y)
    known = OODDetector(calibration=calibration, random_state=0).fit(X[y != -1])
    np.testing.assert_array_equal(once.score_samples(X), known.score_samples(X))


@pytest.mark.parametrize("classifier", [LogisticRegression(max_iter=2000), RandomForestClassifier(20, random_state=0)])
def test_a_fitted_classifier_is_used_and_another_is_fitted(classifier: object) -> None:
    data = load_digits()
    known = data.target < 6
    X, y, unknown = data.data[known] / 16, data.target[known], data.data[~known] / 16
    new = OODDetector(estimator=classifier, random_state=0).fit(X, y)
    assert not hasattr(classifier, "classes_")  # a clone of it was fitted
    assert auroc(new, np.r_[X, unknown], np.r_[y, np.full(len(unknown), -1)]) > 0.9

    fitted = clone(classifier).fit(X[:600], y[:600])
    detector = OODDetector(estimator=fitted, random_state=0).fit(X[600:])
    assert detector.estimator_ is fitted and detector.detector_.calibration.images == len(X) - 600
    np.testing.assert_allclose(detector.score_samples(X), fitted.predict_proba(X).max(1), rtol=1e-4)
    frozen = clone(OODDetector(estimator=FrozenEstimator(fitted))).fit(X[600:])
    np.testing.assert_array_equal(frozen.predict(X), detector.predict(X))


def test_texts_reach_the_classifier() -> None:
    texts = ["red green blue", "one two three"] * 40
    classifier = make_pipeline(TfidfVectorizer(), LogisticRegression())
    detector = OODDetector("energy", estimator=classifier, keep=0.9, random_state=0).fit(texts, [0, 1] * 40)
    assert detector.score_samples(["red", "red green blue"]).argmax() == 1
    assert detector.detector_.classes == ("0", "1")


def test_scores_of_rows_and_logits_get_both() -> None:
    X, y = wine(unknown=-2)
    detector = OODDetector("caref", estimator=LogisticRegression(max_iter=5000), random_state=0).fit(X, y)
    assert detector.detector_.accepted.takes == {"features": 13, "logits": 3}
    assert OODDetector("mahalanobis", random_state=0).fit(X, y).predict(X).mean() > 0.5


def test_the_detector_inside_has_the_same_verdicts() -> None:
    X, _ = wine()
    detector = OODDetector(random_state=0).fit(X)
    verdicts = detector.detector_.predict(X)
    np.testing.assert_array_equal(verdicts.is_ood, detector.predict(X) == -1)
    np.testing.assert_allclose(verdicts.p_value, detector.p_values(X))
    assert isinstance(detector.detector_, macs.FeatureDetector)


def kept(calibration: float, rounds: int) -> float:
    """The mean share of new rows of an embedded table that is kept, over splits of it."""
    X = StandardScaler().fit_transform(load_digits().data[:760, ::4])
    shares = []
    for seed in range(rounds):
        order = np.random.default_rng(seed).permutation(len(X))
        detector = OODDetector(keep=0.9, calibration=calibration, random_state=seed).fit(X[order[:160]])
        shares.append((detector.predict(X[order[160:]]) == 1).mean())
    return float(np.mean(shares))


def test_a_split_keeps_what_it_promises() -> None:
    assert 0.9 - 0.03 <= kept(0.25, rounds=20) <= 0.9 + 1 / 41 + 0.03


def test_folds_keep_nearly_as_much() -> None:
    assert 0.87 < kept(5, rounds=8) < 0.95


def test_too_few_rows_promise_less_and_say_so() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.warns(MacsWarning, match=r"19 calibration rows or more, but there are 5; .* promises 0.833"):
        detector = OODDetector(random_state=0).fit(X)
    assert detector.keep_ == pytest.approx(5 / 6, abs=1e-5)
    assert detector.offset_ == min(detector.detector_.p_values.confidences)


@pytest.mark.parametrize(
    ("detector", "y", "message"),
    [
        (OODDetector("energy"), None, "judges the logits of a classifier; give estimator="),
        (OODDetector(calibration=1.5), None, "a share between 0 and 1, or a number of folds"),
        (OODDetector(calibration=99), None, "from 2 to 40 folds"),
        (OODDetector("relative-mahalanobis"), None, "give labels of two or more"),
        (OODDetector("mahalanobis"), np.where(np.arange(40) % 2, np.nan, 1), "labels that are not numbers"),
        (OODDetector(estimator=LogisticRegression()), None, "not fitted yet, which takes y"),
        (OODDetector(estimator=SVC(decision_function_shape="ovo")), np.arange(40) % 4, "one decision value"),
        (OODDetector(), np.full(40, -1), "0 known rows"),
        (OODDetector(), np.zeros(39), "40 rows, but y has 39 labels"),
        (OODDetector("nothing"), None, "nothing"),
    ],
)
def test_what_cannot_be_fitted(detector: OODDetector, y: np.ndarray, message: str) -> None:
    with pytest.raises(MacsError, match=message):
        detector.fit(np.random.default_rng(0).normal(size=(40, 3)), y)


def test_an_auroc_needs_both_kinds() -> None:
    X, y = wine()
    detector = OODDetector(random_state=0).fit(X, y)
    assert auroc(detector, X, y) == roc_auc_score(y != -1, detector.score_samples(X))
    with pytest.raises(MacsError, match="label the unknown ones -1"):
        auroc(detector, X, np.zeros(len(X)))


def test_without_scikit_learn_it_says_so() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import macs; import macs.sklearn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'macs-ood[sklearn]'" in done.stderr.splitlines()[-1]
