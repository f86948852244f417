"""AOE: its divergence written out, and a gradient that leaves the target alone."""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from macs import methods
from macs.core.errors import MacsError
from macs.methods.aoe import AdaptiveOutlierExposure


def probabilities(z: list[float], temperature: float = 1.0) -> list[float]:
    total = sum(math.exp(v / temperature) for v in z)
    return [math.exp(v / temperature) / total for v in z]


def divergence(targets: list[list[float]], z_out: list[list[float]]) -> float:
    """The mean over images of sum_k q_k log(q_k / p_k)."""
    pairs = zip(targets, map(probabilities, z_out), strict=True)
    sums = [sum(q * math.log(q / p) for q, p in zip(target, own, strict=True)) for target, own in pairs]
    return sum(sums) / len(sums)


def test_it_is_its_formula_written_out_and_only_the_prediction_has_a_gradient() -> None:
    torch.manual_seed(0)
    z_in, z_out, labels = torch.randn(5, 4).double(), 2 * torch.randn(3, 4).double(), torch.randint(4, (5,))
    own = cross_entropy(z_in, labels).item()
    targets = [probabilities(z, 2.5) for z in z_out.tolist()]
    z_out.requires_grad_()
    loss = AdaptiveOutlierExposure().loss(z_in, labels, z_out)
    assert loss.item() == pytest.approx(own + 0.5 * divergence(targets, z_out.tolist()), rel=1e-12)
    (slope,) = torch.autograd.grad(loss, z_out)
    for i in range(3):
        for k in range(4):
            up, down = z_out.tolist(), z_out.tolist()
            up[i][k] += 1e-6
            down[i][k] -= 1e-6
            change = 0.5 * (divergence(targets, up) - divergence(targets, down)) / 2e-6  # the targets stay
            assert slope[i, k].item() == pytest.approx(change, rel=1e-5, abs=1e-9)


def test_the_temperature_decides_how_far_the_prediction_is_pulled() -> None:
    z_in, labels, z_out = torch.zeros(2, 3), torch.tensor([0, 1]), torch.tensor([[4.0, 0.0, 0.0]])
    losses = [methods.build("aoe", {"temperature": t}).loss(z_in, labels, z_out).item() for t in (1, 2.5, 1000)]
    assert losses[0] == pytest.approx(math.log(3)) and losses[0] < losses[1] < losses[2]
    p = probabilities([4.0, 0.0, 0.0])
    uniform = sum(math.log(1 / 3 / each) / 3 for each in p)
    assert losses[2] == pytest.approx(math.log(3) + 0.5 * uniform, rel=1e-2)
    with pytest.raises(MacsError, match="temperature must be above 0"):
        methods.build("aoe", {"temperature": 0})
