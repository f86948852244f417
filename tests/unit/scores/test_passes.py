"""What scores are fitted to: the right layer, the right images, and one sentence where there is neither."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from macs import nets, scores
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.batches import to_float
from macs.inference import Outputs
from macs.scores import fit_all, know, last_layer
from macs.scores._passes import FEW
from tiny import noise, stripes


def classifier(seed: int = 0, bias: bool = True) -> nn.Sequential:
    """Two linear layers, of which only the second is the last, and a dropout that must be off."""
    torch.manual_seed(seed)
    layers = (nn.Flatten(), nn.Linear(768, 10), nn.ReLU(), nn.Dropout(0.5), nn.Linear(10, 3, bias=bias))
    return nn.Sequential(*layers)


class Scaled(nn.Module):
    """Logits that are not what the last linear layer gives."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = classifier()

    def forward(self, pixels: Tensor) -> Tensor:
        logits: Tensor = 2 * self.inside(pixels)
        return logits


def test_features_logits_and_labels_of_all_images(known: ImageSet) -> None:
    net = classifier()
    found = know(net, known)
    with torch.no_grad():
        features = net[2](net[1](to_float(torch.from_numpy(known.pixels[:])).flatten(1)))
    assert torch.allclose(found.features, features, atol=1e-6)
    assert torch.allclose(found.logits, net[4](features), atol=1e-6)
    assert found.labels.tolist() == known.labels.tolist()
    assert all(torch.equal(*pair) for pair in zip((found.weight, found.bias), net[4].parameters(), strict=True))
    assert found.source == "stripes" and net.training


def test_a_score_is_fitted_to_a_loader_as_to_what_is_known_of_its_images(known: ImageSet) -> None:
    net = classifier()
    pixels, labels = to_float(torch.from_numpy(known.pixels[:])), torch.from_numpy(known.labels)
    loader = DataLoader(TensorDataset(pixels, labels), batch_size=7)
    outputs = Outputs(torch.randn(5, 3), torch.randn(5, 10))
    for name in ("knn", "mahalanobis", "vim"):
        score = scores.get(name)
        expected = score.fit(know(net, known))
        assert torch.equal(score.fit(loader, net)(outputs), expected(outputs)) and not score.fitted
    total = scores.get("msp+knn")
    expected = total.fit(know(net, known, known.subset(range(40))))
    assert torch.equal(total.fit(loader, net, known.subset(range(40)))(outputs), expected(outputs))
    with pytest.raises(MacsError, match=r"fitted to images as a network sees them; give it too: fit\(images, net\)"):
        score.fit(known)


def test_a_limit_draws_images_by_the_seed(known: ImageSet) -> None:
    net = classifier()
    everything = {tuple(row) for row in know(net, known, limit=0).features.tolist()}
    first, again, other = (know(net, known, limit=40, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.features, again.features) and not torch.equal(first.features, other.features)
    assert len(first) == 40 and {tuple(row) for row in first.features.tolist()} <= everything
    assert np.bincount(first.labels).min() > 0
    with pytest.raises(MacsError, match="not -1"):
        know(net, known, limit=-1)


def test_our_networks_and_a_last_layer_without_bias(known: ImageSet) -> None:
    net: Any = nets.build("wrn-10-1", classes=3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    assert torch.equal(last_layer(net, known).weight, net.fc.weight)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert last_layer(classifier(bias=False), known).bias.tolist() == [0, 0, 0]


def test_what_was_learnt_stays_when_the_network_goes_on(known: ImageSet) -> None:
    net = classifier()
    found = last_layer(net, known)
    nn.init.zeros_(net.get_parameter("4.weight"))
    assert found.weight.abs().max() > 0


def test_networks_without_a_last_linear_layer_are_refused(known: ImageSet) -> None:
    with pytest.raises(MacsError, match="has no linear layer"):
        last_layer(nn.Sequential(nn.Conv2d(3, 3, 16), nn.Flatten()), known)
    with pytest.raises(MacsError, match="does not compute its logits"):
        know(Scaled(), known)


def all_scores(pixels: bool = True) -> dict[str, scores.Score]:
    """Every score, or every score that does not run the network itself."""
    found = {name: scores.get(name) for name in scores.available()}
    return {name: score for name, score in found.items() if pixels or score.reads != "pixels"}


def test_one_pass_fits_all_scores(known: ImageSet, known_test: ImageSet) -> None:
    net = classifier()
    passed = []
    net.register_forward_pre_hook(lambda module, inputs: passed.append(len(inputs[0])))
    done = fit_all(all_scores(pixels=False), net, known_test, known)
    assert {*done.scores} == {*all_scores(pixels=False)} and not done.left_out
    assert (done.train, done.images) == ("stripes", len(known))
    assert sum(passed) <= len(known) + 4 * FEW  # a few images twice each time that the last layer is looked for


def test_without_training_images_only_some_are_left_out(known_test: ImageSet) -> None:
    done = fit_all(all_scores(), classifier(), known_test)
    fitted = {name for name, score in all_scores().items() if score.fitted_to == "training images"}
    held_out = {name for name, score in all_scores().items() if score.fitted_to == "held-out images"}
    assert {"knn", "vim", "she"} <= fitted and held_out == {"adascale-a", "adascale-l"}
    assert {*done.left_out} == fitted | held_out
    assert all("ID training images" in done.left_out[name] for name in fitted)
    assert all("held-out ID images, but there are 0" in done.left_out[name] for name in held_out)
    assert (done.train, done.images) == ("", 0)


def test_each_reason_is_its_own(known: ImageSet, known_test: ImageSet) -> None:
    unlabelled = fit_all(all_scores(), classifier(), known_test, noise(90, seed=7))
    assert {*unlabelled.left_out} == {name for name, score in all_scores().items() if score.labelled}
    assert {"mahalanobis", "she"} <= {*unlabelled.left_out} and "caref" in unlabelled.scores
    assert all("no labels" in reason for reason in unlabelled.left_out.values())
    headless = nn.Sequential(nn.Conv2d(3, 3, 16), nn.Flatten())
    assert set(fit_all(all_scores(), headless, known_test, known).scores) == {
        "energy",
        "gen",
        "joint-energy",
        "maxlogit",
        "msp",
        "odin",
    }
    same = fit_all({"knn": scores.get("knn")}, classifier(), known_test, known_test)
    assert "never fitted to the test images" in same.left_out["knn"]

    def absent() -> ImageSet:
        raise MacsError("There is no such folder.")

    assert fit_all({"knn": scores.get("knn")}, classifier(), known_test, absent).left_out == {
        "knn": "Scores that are fitted need ID training images: There is no such folder."
    }


def test_training_images_are_fetched_only_when_needed(known_test: ImageSet) -> None:
    def never() -> ImageSet:
        raise AssertionError

    done = fit_all({"msp": scores.get("msp"), "ash": scores.get("ash")}, classifier(), known_test, never)
    assert set(done.scores) == {"msp", "ash"}


def test_train_may_be_a_function(known_test: ImageSet) -> None:
    done = fit_all({"knn": scores.get("knn")}, classifier(), known_test, lambda: stripes(30, seed=9))
    assert done.images == 30
