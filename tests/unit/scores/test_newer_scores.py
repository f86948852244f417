"""Scores of 2023 to 2025 that read features: each against loops, lists and scikit-learn; their edges and doubts."""

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler, normalize

from clustered_features import BIAS, CLASSES, FEATURES, LABELS, TEST, TRAIN, WEIGHT, asked, known, logits_of
from macs import scores
from macs.core.errors import MacsError, MacsWarning
from macs.scores import Known
from macs.scores.caref import CARef
from macs.scores.fdbd import FDBD
from macs.scores.nci import NCI
from macs.scores.neco import NECO
from macs.scores.nnguide import NNGuide
from macs.scores.she import SHE

ROUNDING = 1e-9
ANSWERS = logits_of(TRAIN).argmax(axis=1)  # what the network says of the training images


def fitted(score: scores.Score, given: Known | None = None) -> scores.Score:
    """The score, fitted; the random last layer predicts some classes seldom, which is not the point here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MacsWarning)
        return score.fit(given or known())


def dot(first: Any, second: Any) -> float:
    return math.fsum(a * b for a, b in zip(first, second, strict=True))


def length(values: Any) -> float:
    return math.sqrt(dot(values, values))


def minus(first: Any, second: Any) -> list[float]:
    return [a - b for a, b in zip(first, second, strict=True)]


def mean(rows: Any) -> list[float]:
    rows = list(rows)
    return [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]


def answer(features: list[float]) -> tuple[int, list[float]]:
    """The predicted class and the logits, without a matrix product."""
    logits = [dot(row, features) + b for row, b in zip(WEIGHT, BIAS, strict=True)]
    return logits.index(max(logits)), logits


def of_each(confidence: Any) -> list[float]:
    return [confidence(features, *answer(features)) for features in TEST.tolist()]


def test_fdbd_is_the_mean_distance_to_the_boundaries() -> None:
    centre = mean(TRAIN.tolist())

    def to_the_boundary(features: list[float], c: int, k: int) -> float:
        """The length of the shortest step along w_c - w_k after which both logits are equal."""
        way = minus(WEIGHT[c], WEIGHT[k])
        step = (dot(way, features) + BIAS[c] - BIAS[k]) / dot(way, way)
        reached = [f - step * w for f, w in zip(features, way, strict=True)]
        logits = answer(reached)[1]
        assert logits[c] == pytest.approx(logits[k])
        return length(minus(features, reached))

    def confidence(features: list[float], c: int, _: list[float]) -> float:
        distances = [to_the_boundary(features, c, k) for k in range(CLASSES) if k != c]
        return math.fsum(distances) / len(distances) / length(minus(features, centre))

    assert asked(fitted(FDBD())) == pytest.approx(of_each(confidence), rel=ROUNDING)


def test_fdbd_refuses_classes_without_a_boundary_and_bears_features_at_the_mean() -> None:
    same = known().weight.clone()
    same[3] = same[1]
    with pytest.raises(MacsError, match="classes 1 and 3 have equal weights"):
        FDBD().fit(replace(known(), weight=same))
    at_the_mean = TRAIN.mean(axis=0, keepdims=True)
    assert np.isfinite(asked(fitted(FDBD()), at_the_mean)).all()


@pytest.mark.parametrize("alpha", [1e-4, 0.0, 0.1])
def test_nci_is_the_projection_on_the_weights_and_the_norm(alpha: float) -> None:
    centre = mean(TRAIN.tolist())

    def confidence(features: list[float], c: int, _: list[float]) -> float:
        around = minus(features, centre)
        return dot(WEIGHT[c], around) / length(around) + alpha * math.fsum(map(abs, features))

    assert asked(fitted(NCI(alpha))) == pytest.approx(of_each(confidence), rel=ROUNDING)
    with pytest.raises(MacsError, match="alpha must be at least 0"):
        NCI(-1)


@pytest.mark.parametrize(("k", "bank"), [(100, None), (5, None), (5, 20), (1, 0), (1000, 0)])
def test_nnguide_is_the_energy_times_the_similarity_to_sure_images(k: int, bank: int | None) -> None:
    score = fitted(NNGuide(k, bank))
    everything = [(features, logsumexp(logits)) for features, logits in zip(TRAIN, logits_of(TRAIN), strict=True)]
    whole = [[energy * f / length(features) for f in features] for features, energy in everything]
    size = len({None: whole[: max(3, 10 * k)], 0: whole}.get(bank, whole[:bank]))
    assert len(score.vectors) == size
    rows = {tuple(np.round(row, 9)) for row in whole}
    assert {tuple(np.round(row, 9)) for row in score.vectors.tolist()} <= rows

    def confidence(features: list[float], _: int, logits: list[float]) -> float:
        products = sorted(dot(features, row) / length(features) for row in score.vectors.tolist())
        largest = products[-min(k, len(products)) :]
        return float(logsumexp(logits)) * math.fsum(largest) / len(largest)

    assert asked(score) == pytest.approx(of_each(confidence), rel=ROUNDING)


def test_nnguide_keeps_one_percent_or_ten_times_k() -> None:
    assert [NNGuide().bank_size(images) for images in (500, 10_000, 1_281_167)] == [1000, 1000, 12_812]
    assert [NNGuide(bank=bank).bank_size(700) for bank in (0, 50)] == [700, 50]
    drawn = fitted(NNGuide(k=2)).vectors
    assert len(drawn) == 20 and torch.equal(drawn, fitted(NNGuide(k=2)).vectors)
    whole = fitted(NNGuide(bank=0)).vectors
    assert not torch.equal(drawn, whole[:20])  # not the first ones


def test_nnguide_doubts_negative_energies() -> None:
    with pytest.warns(MacsWarning, match="energies, which have to be positive, but those of 100% of the training"):
        NNGuide().fit(replace(known(), logits=known().logits - 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NNGuide().fit(replace(known(), logits=known().logits + 100))


def means_by(classes: np.ndarray, rows: np.ndarray) -> list[list[float]]:
    """The mean of each class, or of all rows for a class without one."""
    return [mean(rows[classes == c].tolist() if (classes == c).any() else rows.tolist()) for c in range(CLASSES)]


def test_caref_is_the_relative_distance_to_the_mean_of_the_predicted_class() -> None:
    means = means_by(ANSWERS, TRAIN)

    def confidence(features: list[float], c: int, _: list[float]) -> float:
        return -math.fsum(map(abs, minus(features, means[c]))) / math.fsum(map(abs, features))

    assert asked(fitted(CARef())) == pytest.approx(of_each(confidence), rel=ROUNDING)
    unlabelled = fitted(CARef(), replace(known(), labels=None))
    assert (asked(unlabelled) == asked(fitted(CARef()))).all()
    nothing = asked(fitted(CARef()), np.zeros((1, FEATURES)))
    assert np.isfinite(nothing).all() and nothing < asked(fitted(CARef())).min()


def test_she_is_the_product_with_the_mean_of_correct_images() -> None:
    for labels in (LABELS, np.where(np.arange(300) % 4 == 0, LABELS, ANSWERS)):
        correct = labels == ANSWERS
        means = means_by(ANSWERS[correct], TRAIN[correct])
        score = fitted(SHE(), replace(known(), labels=torch.tensor(labels)))
        expected = of_each(lambda features, c, _, means=means: dot(features, means[c]))
        assert asked(score) == pytest.approx(expected, rel=ROUNDING)


def test_she_asks_for_labels_and_for_a_correct_image() -> None:
    with pytest.raises(MacsError, match="SHE is fitted class by class, but the training images have no labels"):
        SHE().fit(replace(known(), labels=None))
    with pytest.raises(MacsError, match="SHE finds no training image that is classified correctly"):
        SHE().fit(replace(known(), labels=torch.tensor((ANSWERS + 1) % CLASSES)))


@pytest.mark.parametrize(("score", "words"), [(CARef(), "predicted as such"), (SHE(), "classified correctly")])
def test_classes_that_are_never_answered_are_told(score: scores.Score, words: str) -> None:
    two = replace(known(), logits=known().logits + torch.tensor([0.0, 0.0, -100, -100]))
    with pytest.warns(MacsWarning, match=f"no training image that is {words} for 2 of 4 classes"):
        score.fit(replace(two, labels=two.logits.argmax(1)))


@pytest.mark.parametrize("dimensions", [None, 1, 9])
def test_neco_is_the_share_of_the_norm_in_the_principal_space(dimensions: int | None) -> None:
    scaler = StandardScaler().fit(TRAIN)
    pca = PCA(FEATURES // 2 if dimensions is None else dimensions).fit(scaler.transform(TRAIN))
    points = scaler.transform(TEST)
    ratio = np.array([length(inside) / length(row) for inside, row in zip(pca.transform(points), points, strict=True)])
    assert asked(fitted(NECO(dimensions))) == pytest.approx(ratio, rel=ROUNDING)
    largest = np.array([max(answer(features)[1]) for features in TEST.tolist()])
    assert asked(fitted(NECO(dimensions, by_logit=True))) == pytest.approx(ratio * largest, rel=ROUNDING)
    signed = replace(known(), negative=0.4)
    assert asked(fitted(NECO(dimensions), signed)) == pytest.approx(ratio * largest, rel=ROUNDING)
    assert asked(fitted(NECO(dimensions, by_logit=False), signed)) == pytest.approx(ratio, rel=ROUNDING)


def test_neco_doubts_a_product_with_negative_logits() -> None:
    low = replace(known(), logits=known().logits - 100)
    with pytest.warns(MacsWarning, match="largest logit, which has to be positive, but that of 100% of the training"):
        NECO(by_logit=True).fit(low)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NECO().fit(low)
        NECO(by_logit=True).fit(replace(known(), logits=known().logits + 100))


def test_neco_takes_100_dimensions_and_half_of_few_features() -> None:
    random = np.random.default_rng(0)
    for features, dimensions in ((2048, 100), (200, 100), (128, 64), (3, 1)):
        rows = torch.tensor(random.normal(size=(2500 if features > 1000 else 300, features)))
        given = replace(known(), features=rows, logits=torch.zeros(len(rows), CLASSES), labels=None)
        assert fitted(NECO(), given).axes.shape == (features, dimensions)


def test_neco_centres_a_constant_feature_and_refuses_what_has_nothing_outside() -> None:
    flat = TRAIN.copy()
    flat[:, 0], flat[:, 1] = 0, 0.1
    scaler = StandardScaler().fit(flat)
    points = scaler.transform(TEST)
    inside = PCA(FEATURES // 2).fit(scaler.transform(flat)).transform(points)
    expected = np.linalg.norm(inside, axis=1) / np.linalg.norm(points, axis=1)
    assert asked(fitted(NECO(), known(features=flat))) == pytest.approx(expected, rel=ROUNDING)
    for given, dimensions in ((TRAIN[:5], 4), (TRAIN, FEATURES), (TRAIN, FEATURES + 1)):
        with pytest.raises(MacsError, match=f"NECO finds nothing outside of {dimensions} dimensions"):
            NECO(dimensions).fit(known(features=given))
    with pytest.raises(MacsError, match="dimensions must be at least 1"):
        NECO(0)


def distances(features: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    return np.array([row @ precision @ row for row in features - mean])


def test_normalised_mahalanobis_measures_unit_features() -> None:
    train, test = normalize(TRAIN), normalize(TEST)
    centres = [train[c == LABELS].mean(axis=0) for c in range(CLASSES)]
    within = np.concatenate([train[c == LABELS] - centres[c] for c in range(CLASSES)])
    precision = EmpiricalCovariance(assume_centered=True).fit(within).precision_
    nearest = np.min([distances(test, centre, precision) for centre in centres], axis=0)
    everything = EmpiricalCovariance().fit(train)
    background = distances(test, everything.location_, everything.precision_)
    expected = {"mahalanobis": -nearest, "relative-mahalanobis": background - nearest}
    for name, values in expected.items():
        for score in (scores.get(f"normalised-{name}"), scores.get(name, normalise=True)):
            found = asked(score.fit(known()))
            assert found == pytest.approx(values, rel=1e-8, abs=1e-8 * np.ptp(values))
            assert asked(score.fit(known()), 7 * TEST) == pytest.approx(found)  # the norm plays no part
        plain = scores.get(f"normalised-{name}", normalise=False).fit(known())
        assert (asked(plain) == asked(scores.get(name).fit(known()))).all()


def test_names_and_settings_of_the_normalised_scores() -> None:
    assert scores.get("mahalanobis").settings == {"normalise": False}
    assert scores.get("normalised-mahalanobis").settings == {"normalise": True}
    assert scores.name_of(scores.get("mahalanobis", normalise="true")) == "mahalanobis"
    assert scores.name_of(scores.get("normalised-relative-mahalanobis")) == "normalised-relative-mahalanobis"
    assert scores.get("energy+normalised-mahalanobis").name == "energy+normalised-mahalanobis"
    with pytest.raises(MacsError, match="normalise must be true or false"):
        scores.get("mahalanobis", normalise="perhaps")
