"""Rows of features in the place of images."""

import numpy as np
import pytest
import torch
from torch import nn

from macs import FeatureSet, MacsError, evaluate, scores
from macs.inference import outputs_of


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 5))


def test_a_network_gets_the_features_as_they_are() -> None:
    features = rows(700)
    net = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    outputs = list(outputs_of(net, FeatureSet.from_array(features), features=True))
    given = torch.tensor(features, dtype=torch.float32)
    torch.testing.assert_close(torch.cat([each.logits for each in outputs]), net(given))
    torch.testing.assert_close(torch.cat([each.features for each in outputs]), net[:2](given))


def test_subsets_and_splits_are_rows_of_the_whole() -> None:
    whole = FeatureSet.from_array(rows(20), np.arange(20) % 3)
    first, rest = whole.split(6)
    assert isinstance(first, FeatureSet) and (len(first), len(rest)) == (6, 14)
    both = np.concatenate([first.pixels[:], rest.pixels[:]])
    np.testing.assert_array_equal(np.sort(both, 0), np.sort(whole.pixels[:], 0))
    part = whole.subset([3, 1])
    np.testing.assert_array_equal(part.pixels[:], whole.pixels[np.array([3, 1])])
    assert part.labels.tolist() == [0, 1] and part.spec.fingerprint != whole.spec.fingerprint


def test_evaluation_and_scores_take_features() -> None:
    known, unknown = FeatureSet.from_array(rows(90), np.arange(90) % 3), FeatureSet.from_array(rows(60, 1) + 5)
    net = nn.Linear(5, 3)
    knn = scores.get("knn", k=5).fit(scores.know(net, known))
    by_hand = scores.ask(net, known, "msp").confidence
    np.testing.assert_allclose(
        by_hand, net(torch.from_numpy(known.pixels[:])).softmax(1).amax(1).detach().numpy(), rtol=1e-5
    )
    assert scores.ask(net, unknown, knn).confidence.shape == (60,)
    assert evaluate(net, known, {"far": unknown}, score="msp", trials=2).as_dict()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 3, 4)), "one row per input"),
        (np.array([["a", "b"]]), "give numbers"),
        (np.array([[1, np.nan], [1, 2]]), "1 of 2 rows with NaN or inf"),
        (np.array([[1e300, 1]]), "1 of 1 rows with NaN or inf"),
        (np.zeros((0, 4)), "one row per input"),
    ],
)
def test_what_is_no_set_of_features(given: np.ndarray, message: str) -> None:
    with pytest.raises(MacsError, match=message):
        FeatureSet.from_array(given)
