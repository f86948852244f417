"""diverseMix: its draw written out, its place before any method, and the same bits after a resume."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from macs import methods
from macs.core.errors import MacsError
from macs.training.recipe import Recipe
from macs.training.training_batches import diverse_mix, features_suffice
from short_training import TwoLayers


def test_it_is_its_equations_written_out() -> None:
    torch.manual_seed(0)
    head = nn.Linear(12, 3)
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), head)
    with torch.no_grad():
        head.weight.mul_(30)  # energies that differ
    outliers = torch.rand(9, 3, 2, 2)
    found = diverse_mix(net, outliers, np.random.default_rng(5))
    assert net.training and not found.requires_grad

    random = np.random.default_rng(5)
    partner = random.permutation(9)
    logits = (outliers.flatten(1) @ head.weight.T + head.bias).detach().double().numpy()
    energies = np.log(np.exp(logits).sum(1))
    one, other = np.exp(energies / 10), np.exp(energies[partner] / 10)
    share = one / (one + other)
    w = random.beta(4 * share + 0.01, 4 * (1 - share) + 0.01)
    for i in range(9):
        expected = w[i] * outliers[i].double() + (1 - w[i]) * outliers[partner[i]].double()
        torch.testing.assert_close(found[i].double(), expected, rtol=1e-4, atol=1e-5)


def test_the_outlier_that_looks_more_like_id_weighs_more() -> None:
    class Brightness(nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return 40 * pixels.mean((2, 3))[:, :2]

    outliers = torch.zeros(400, 3, 1, 1)
    outliers[::2] = 1.0
    mixed = diverse_mix(Brightness(), outliers, np.random.default_rng(0))
    # A bright and a dark one have energies 40 apart: c = softmax([4, 0]), so the mean of w is 0.98.
    different = (mixed > 0) & (mixed < 1)
    assert mixed[different].mean() > 0.9 and mixed.mean() > 0.7


def test_it_needs_pixels_and_another_mix_is_refused() -> None:
    frozen = Recipe(freeze="backbone")
    oe = methods.build("oe")
    assert features_suffice(TwoLayers(), oe, frozen, (3, 16, 16))
    assert not features_suffice(TwoLayers(), oe, replace(frozen, outlier_mix="diverse"), (3, 16, 16))
    with pytest.raises(MacsError, match="outlier_mix must be one of none, diverse"):
        Recipe(outlier_mix="cut")  # type: ignore[arg-type]
