"""Scores that were made for features after a ReLU, and features of both signs."""

import pytest
import torch
from torch import nn

from macs import scores
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.scores import fit_all, know, last_layer

REFUSED, DOUBTED = {"ash", "ash-b", "scale"}, {"adascale-a", "adascale-l", "ash-p", "react", "she"}


def classifier(last: nn.Module) -> nn.Sequential:
    """A classifier whose features come out of the layer `last`."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10), last, nn.Linear(10, 3))


def test_the_share_of_negative_features_is_that_of_their_absolute_values(known: ImageSet) -> None:
    features = know(net := classifier(nn.LayerNorm(10)), known).features.numpy()
    by_hand = abs(features[features < 0]).sum() / abs(features).sum()
    assert know(net, known).negative == pytest.approx(by_hand, rel=1e-5) and 0.3 < by_hand < 0.7
    first = features[:8]
    assert last_layer(net, known).negative == pytest.approx(abs(first[first < 0]).sum() / abs(first).sum(), rel=1e-4)
    assert know(classifier(nn.ReLU()), known).negative == 0


def test_scores_that_add_features_up_are_refused_if_these_cancel(known: ImageSet, known_test: ImageSet) -> None:
    every = scores.get_all([*REFUSED, *DOUBTED, "dice", "knn", "energy", "mahalanobis", "fdbd", "nci"], {})
    with pytest.warns(MacsWarning) as warnings:
        signed = fit_all(every, classifier(nn.LayerNorm(10)), known_test, known)
    assert {*signed.left_out} == REFUSED and all("cancel the others" in why for why in signed.left_out.values())
    doubted = {type(score).__name__ for name, score in every.items() if name in DOUBTED}
    told = [str(each.message) for each in warnings if "features that are never negative" in str(each.message)]
    assert {message.split()[0] for message in told} == doubted and len(told) == len(doubted)
    with pytest.raises(MacsError, match="of this network's features, by absolute value, are negative"):
        scores.get("ash").fit(last_layer(classifier(nn.LayerNorm(10)), known))


@pytest.mark.parametrize("last", [nn.ReLU(), nn.Sequential(nn.BatchNorm1d(10, track_running_stats=False), nn.GELU())])
def test_features_that_are_seldom_negative_are_for_every_score(
    last: nn.Module, known: ImageSet, known_test: ImageSet, recwarn: pytest.WarningsRecorder
) -> None:
    fitted = fit_all(scores.get_all(scores.available(), {}), classifier(last), known_test, known)
    assert not fitted.left_out and not [each for each in recwarn if "negative" in str(each.message)]
