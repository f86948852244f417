"""Each score that reads features, or is fitted, against a slow computation of its own: loops, scipy, scikit-learn."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.linalg import pinvh
from scipy.spatial.distance import mahalanobis
from scipy.special import logsumexp
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from torch import Tensor

from clustered_features import (
    BIAS,
    CLASSES,
    FEATURES,
    LABELS,
    READ_FEATURES,
    TEST,
    TRAIN,
    WEIGHT,
    asked,
    known,
    logits_of,
)
from macs import scores
from macs.core.errors import MacsError, MacsWarning
from macs.inference import Outputs
from macs.scores import _statistics
from macs.scores.ash import ASH, ASHB, ASHP
from macs.scores.dice import DICE
from macs.scores.gen import GEN
from macs.scores.knn import KNN, clustered, kth_largest
from macs.scores.nnguide import NNGuide
from macs.scores.react import ReAct
from macs.scores.scale import Scale
from macs.scores.vim import ViM, principal_dimensions


def by_class(features: np.ndarray, labels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The mean of each class that occurs, and every image's distance from its own."""
    parts = [features[labels == c] for c in sorted(set(labels.tolist()))]
    means = [part.mean(axis=0) for part in parts]
    return means, np.concatenate([part - mean for part, mean in zip(parts, means, strict=True)])


def confidences(score: scores.Score, features: np.ndarray = TEST, dtype: torch.dtype = torch.float64) -> np.ndarray:
    """What a score, fitted to the training features, says of others."""
    return asked(score.fit(known(dtype)), features, dtype)


def energy(features: list[float], weight: np.ndarray = WEIGHT) -> float:
    """log sum exp of the last layer, without a matrix product."""
    logits = [sum(w * f for w, f in zip(row, features, strict=True)) + b for row, b in zip(weight, BIAS, strict=True)]
    return math.log(sum(math.exp(z - max(logits)) for z in logits)) + max(logits)


@pytest.mark.parametrize("percentile", [90, 65, 0])
def test_ash_keeps_the_largest_features_and_scales_them(percentile: int) -> None:
    count = FEATURES - round(FEATURES * percentile / 100)
    for variant in (ASH, ASHB, ASHP):
        expected = []
        for features in TEST.tolist():
            largest = sorted(range(FEATURES), key=lambda d: -features[d])[:count]
            total, rest = sum(features), sum(features[d] for d in largest)
            shaped = [0.0] * FEATURES
            for d in largest:
                whole = {ASH: features[d] * math.exp(total / rest), ASHB: total / count, ASHP: features[d]}
                shaped[d] = whole[variant]
            expected.append(energy(shaped))
        assert confidences(variant(percentile)) == pytest.approx(expected, rel=1e-12)


def test_scale_multiplies_every_feature() -> None:
    expected = []
    for features in TEST.tolist():
        share = sum(features) / sum(sorted(features)[-2:])  # 15% of 13 features are 2
        expected.append(energy([f * math.exp(share) for f in features]))
    assert confidences(Scale()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["ash", "ash-b", "ash-p", "scale"])
def test_an_image_without_any_feature_gets_the_energy_of_the_bias(name: str) -> None:
    assert confidences(scores.get(name), np.zeros((1, FEATURES))) == pytest.approx(logsumexp(BIAS))


def test_react_cuts_features_off_at_a_percentile() -> None:
    ordered = sorted(TRAIN.ravel())
    place = 0.9 * (len(ordered) - 1)
    low, high = ordered[int(place)], ordered[int(place) + 1]
    ceiling = low + (place - int(place)) * (high - low)
    expected = [energy([min(f, ceiling) for f in features]) for features in TEST.tolist()]
    assert confidences(ReAct()) == pytest.approx(expected, rel=1e-12)
    assert confidences(ReAct(100), TRAIN) == pytest.approx(logsumexp(logits_of(TRAIN), axis=1))


def test_dice_keeps_the_weights_that_contribute_most() -> None:
    contributions = {
        (k, d): WEIGHT[k, d] * sum(TRAIN[:, d]) / len(TRAIN) for k in range(CLASSES) for d in range(FEATURES)
    }
    ranked = sorted(contributions, key=lambda pair: contributions[pair])
    sparse = np.zeros_like(WEIGHT)
    for rank, (k, d) in enumerate(ranked):
        if rank > 0.9 * (len(ranked) - 1):
            sparse[k, d] = WEIGHT[k, d]
    assert np.count_nonzero(sparse) == 6
    assert confidences(DICE()) == pytest.approx([energy(features, sparse) for features in TEST.tolist()], rel=1e-12)


def test_knn_doubts_a_k_above_the_images_per_class() -> None:
    for score, given, size in (
        (KNN(k=76), known(), 300),
        (KNN(k=76), replace(known(), labels=None), 300),
        (KNN(k=10, bank=39), known(), 39),
    ):
        with pytest.warns(
            MacsWarning, match=f"k={score.k} needs at least {score.k} images per class, but there are {size} of 4"
        ):
            score.fit(given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KNN(k=75).fit(known())
        KNN(k=300).fit(replace(known(), labels=None, logits=known().logits[:, :0]))  # of no known classes


@pytest.mark.parametrize("k", [1, 50, 1000])
def test_knn_agrees_with_scikit_learn(k: int) -> None:
    neighbours = NearestNeighbors(n_neighbors=min(k, len(TRAIN)), algorithm="brute").fit(normalize(TRAIN))
    distances = neighbours.kneighbors(normalize(TEST))[0][:, -1]
    assert confidences(KNN(k)) == pytest.approx(-distances, rel=1e-9)


@pytest.mark.parametrize(
    ("score", "measure"),
    [(KNN(5), "_between_units"), (KNN(5, normalise=False), "_between_rows"), (NNGuide(5), "_similarity")],
)
def test_a_bank_is_compared_with_few_features_at_a_time(
    score: scores.Score, measure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, fitted = confidences(score), score.fit(known(torch.float64))
    monkeypatch.setattr(_statistics, "PRODUCTS", 2 * len(fitted.vectors) + 1)
    parts: list[int] = []
    of_part = getattr(fitted, measure)

    def counted(features: Tensor) -> Tensor:
        parts.append(len(features))
        return of_part(features)

    monkeypatch.setattr(fitted, measure, counted)
    assert asked(fitted, TEST, torch.float64) == pytest.approx(whole, rel=1e-12)
    assert max(parts) == 2 and sum(parts) == len(TEST)


@pytest.mark.parametrize("k", [1, 3, 40])
def test_the_kth_largest_is_the_same_with_a_gradient(k: int) -> None:
    rows = torch.randn(20, 40, generator=torch.Generator().manual_seed(0))
    rows[0] = 1
    expected = rows.sort(1, descending=True).values[:, k - 1]
    with_gradient = kth_largest(rows.clone().requires_grad_(), k)
    assert with_gradient.tolist() == kth_largest(rows, k).tolist() == expected.tolist()
    assert with_gradient.requires_grad


def unit_points(count: int, seed: int) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, 3)))


def test_a_small_bank_is_drawn_from_the_training_features() -> None:
    bank = KNN(bank=20).fit(known()).vectors.numpy()
    everything = {tuple(row) for row in KNN().fit(known()).vectors.tolist()}
    assert bank.shape == (20, FEATURES) and {tuple(row) for row in bank.tolist()} <= everything
    assert np.array_equal(bank, KNN(bank=20).fit(known()).vectors)
    distances, _ = NearestNeighbors(n_neighbors=5).fit(bank).kneighbors(normalize(TEST))
    assert confidences(KNN(k=5, bank=20)) == pytest.approx(-distances[:, -1])
    for size in (0, 300, 301):
        assert len(KNN(bank=size).fit(known()).vectors) == 300


def test_k_means_ends_where_each_centre_is_the_direction_of_its_points() -> None:
    clusters = np.array([[3.0, 0, 0], [0, 3, 0], [0, 0, 3], [-3, 0, 0]])
    points = normalize(clusters[np.arange(400) % 4] + 0.2 * unit_points(400, seed=1))
    starts = torch.tensor(points[:4])
    found = clustered(torch.tensor(points), starts).numpy()
    for i in range(4):  # as many starts as clusters, one in each
        assert found[i] == pytest.approx(normalize(points[i::4].mean(0, keepdims=True))[0])


def test_k_means_keeps_a_centre_without_points_and_draws_the_others_nearer() -> None:
    points = torch.tensor(unit_points(500, seed=2))
    far = torch.tensor([[1.0, 0, 0]])
    near = points[points[:, 0] < 0]
    assert torch.equal(clustered(near, torch.cat([far, near[:5]]))[0], far[0])
    drawn = KNN(bank=30).fit(known()).vectors
    centres = KNN(bank=30, reduce="kmeans").fit(known()).vectors
    assert centres.norm(dim=1).numpy() == pytest.approx(1)
    unit = torch.tensor(normalize(TRAIN))
    assert (unit @ centres.T).amax(1).mean() > (unit @ drawn.T).amax(1).mean()


def squared(features: np.ndarray, mean: np.ndarray, precision: np.ndarray) -> float:
    return mahalanobis(features, mean, precision) ** 2


def test_mahalanobis_agrees_with_scipy_and_scikit_learn() -> None:
    means, within = by_class(TRAIN, LABELS)
    precision = EmpiricalCovariance(assume_centered=True).fit(within).precision_
    classes = np.array([[squared(features, mean, precision) for mean in means] for features in TEST])
    assert confidences(scores.get("mahalanobis")) == pytest.approx(-classes.min(axis=1), rel=1e-9)

    everything = EmpiricalCovariance().fit(TRAIN)
    background = np.array([squared(features, everything.location_, everything.precision_) for features in TEST])
    relative = -(classes - background[:, None]).min(axis=1)
    assert confidences(scores.get("relative-mahalanobis")) == pytest.approx(relative, rel=1e-9, abs=1e-9)


def test_mahalanobis_looks_only_where_training_features_spread() -> None:
    """Dead, constant and repeated features make the covariance singular; the pseudo-inverse is what is left."""
    singular = TRAIN.copy()
    singular[:, 0], singular[:, 1], singular[:, 2] = 0, 2, singular[:, 3]
    means, within = by_class(singular, LABELS)
    precision = pinvh(within.T @ within / len(within))
    expected = [-min(squared(features, mean, precision) for mean in means) for features in TEST]
    score = scores.get("mahalanobis").fit(known(features=singular))
    assert asked(score) == pytest.approx(expected, rel=1e-6)


def test_mahalanobis_asks_for_labels_and_for_spread() -> None:
    with pytest.raises(MacsError, match="no labels"):
        scores.get("mahalanobis").fit(replace(known(), labels=None))
    with pytest.raises(MacsError, match="no spread"):
        scores.get("mahalanobis").fit(known(features=TRAIN[:1]))


def test_fewer_images_than_features_are_doubted_once() -> None:
    few = TRAIN[: TRAIN.shape[1]]
    labels = torch.tensor(LABELS[: len(few)])
    for name in ("mahalanobis", "relative-mahalanobis"):
        with pytest.warns(MacsWarning, match=f"there are {len(few)} for {FEATURES}") as doubts:
            scores.get(name).fit(replace(known(features=few), labels=labels))
        assert len(doubts) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores.get("mahalanobis").fit(known())


def test_a_class_without_training_images_is_nobodys_nearest() -> None:
    two = np.where(LABELS < 2, 0, 3)
    kept, within = by_class(TRAIN, two)
    precision = EmpiricalCovariance(assume_centered=True).fit(within).precision_
    expected = [-min(squared(features, mean, precision) for mean in kept) for features in TEST]
    score = scores.get("mahalanobis").fit(replace(known(), labels=torch.tensor(two)))
    assert asked(score) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dimensions", [None, 2, 9])
def test_vim_is_the_log_odds_of_the_virtual_class(dimensions: int | None) -> None:
    origin = np.linalg.lstsq(WEIGHT, -BIAS, rcond=None)[0]
    principal = np.linalg.svd(TRAIN - origin)[2][: FEATURES // 2 if dimensions is None else dimensions]

    def residual(features: np.ndarray) -> np.ndarray:
        around = features - origin
        return np.linalg.norm(around - around @ principal.T @ principal, axis=1)

    alpha = sum(logits_of(TRAIN).max(axis=1)) / sum(residual(TRAIN))
    extended = np.column_stack([logits_of(TEST), alpha * residual(TEST)])
    virtual = np.exp(extended[:, -1] - logsumexp(extended, axis=1))
    assert confidences(ViM(dimensions)) == pytest.approx(np.log((1 - virtual) / virtual), rel=1e-7)


def test_vim_takes_the_authors_dimensions_and_refuses_features_without_a_residual() -> None:
    assert [principal_dimensions(d) for d in (128, 767, 768, 1024, 2048, 4096)] == [64, 383, 512, 512, 1000, 1000]
    flat = TRAIN.copy()
    flat[:, 3:] = np.linalg.lstsq(WEIGHT, -BIAS, rcond=None)[0][3:]
    with pytest.raises(MacsError, match="no residual"):
        scores.get("vim").fit(known(features=flat))


@pytest.mark.parametrize(("gamma", "top"), [(0.1, 100), (0.5, 2), (0.1, 1)])
def test_gen_is_the_entropy_of_the_largest_probabilities(gamma: float, top: int) -> None:
    expected = []
    for logits in logits_of(TEST).tolist():
        total = sum(math.exp(z) for z in logits)
        largest = sorted((math.exp(z) / total for z in logits), reverse=True)[:top]
        expected.append(-sum(p**gamma * (1 - p) ** gamma for p in largest))
    found = GEN(gamma, top).confidence(Outputs(torch.tensor(logits_of(TEST))))
    assert found.numpy() == pytest.approx(expected, rel=1e-8)


def test_gen_tells_very_sure_answers_apart_in_float32() -> None:
    logits = torch.tensor([[30.0, 0.0, 1.0], [40.0, 0.0, 1.0]])
    precise = GEN().confidence(Outputs(logits.double()))
    found = GEN().confidence(Outputs(logits))
    assert found.tolist() == pytest.approx(precise.tolist(), rel=1e-5)
    assert found[1] > found[0]


@pytest.mark.parametrize("name", READ_FEATURES)
def test_float32_gives_nearly_the_same_confidences(name: str) -> None:
    precise = confidences(scores.get(name))
    found = confidences(scores.get(name), dtype=torch.float32)
    assert found.dtype == np.float32
    assert found == pytest.approx(precise, rel=1e-3, abs=1e-4 * np.ptp(precise))


@pytest.mark.parametrize("name", READ_FEATURES)
def test_a_score_of_features_says_what_it_lacks(name: str) -> None:
    score = scores.get(name)
    with pytest.raises(MacsError, match="is not fitted: call fit"):
        asked(score)
    if score.fitted_to == "training images":
        with pytest.raises(MacsError, match="ID training images, but there are none"):
            score.fit(known(features=TRAIN[:0]))
    else:
        assert asked(score.fit(known(features=TRAIN[:0]))) == pytest.approx(confidences(scores.get(name)))
    with pytest.raises(MacsError, match="hold no features"):
        score.fit(known()).confidence(Outputs(torch.zeros(1, CLASSES)))


@pytest.mark.parametrize("name", ["knn", "mahalanobis", "vim"])
def test_features_far_from_all_training_features_get_less_confidence(name: str) -> None:
    far = TRAIN.copy()
    far[:, ::2] = 20 * far[:, ::-2]
    assert np.median(confidences(scores.get(name), TRAIN)) > np.median(confidences(scores.get(name), far))


@pytest.mark.parametrize("name", READ_FEATURES)
def test_fitting_leaves_gradients_alone(name: str) -> None:
    plain = known()
    tensors = {key: getattr(plain, key).clone().requires_grad_() for key in ("logits", "features", "weight", "bias")}
    fitted = scores.get(name).fit(replace(plain, **tensors))
    assert not any(tensor.requires_grad for tensor in fitted.buffers())
    assert asked(fitted) == pytest.approx(confidences(scores.get(name)))


def test_the_distance_to_neighbours_of_another_length() -> None:
    generator = torch.Generator().manual_seed(3)
    bank, new = torch.randn(40, 3, generator=generator), torch.randn(9, 3, generator=generator)
    known = scores.Known(torch.zeros(40, 0), bank, None, torch.zeros(0, 3), torch.zeros(0))
    found = scores.get("knn", k=4, normalise=False).fit(known).confidence(Outputs(torch.zeros(9, 0), new))
    torch.testing.assert_close(found, -torch.cdist(new, bank).sort(1).values[:, 3])
    with pytest.raises(MacsError, match="k-means makes a bank of unit features"):
        scores.get("knn", reduce="kmeans", normalise=False)
