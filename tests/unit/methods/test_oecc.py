"""OECC: its formula written out, its gradient, and the accuracy that it takes from the network."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from macs import methods
from macs.methods import Batch
from macs.methods.oecc import ConfidenceControl


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_it_is_its_formula_written_out(reduction: Any) -> None:
    torch.manual_seed(0)
    z_in, z_out, labels = 2 * torch.randn(5, 4).double(), torch.randn(7, 4).double(), torch.randint(4, (5,))

    def probabilities(z: list[float]) -> list[float]:
        total = sum(math.exp(v) for v in z)
        return [math.exp(v) / total for v in z]

    inside = sum((max(probabilities(z)) - 0.9) ** 2 for z in z_in.tolist())
    outside = sum(abs(p - 0.25) for z in z_out.tolist() for p in probabilities(z))
    if reduction == "mean":
        inside, outside = inside / 5, outside / 7
    expected = cross_entropy(z_in, labels).item() + 0.07 * inside + 0.05 * outside
    method = ConfidenceControl(accuracy=0.9, reduction=reduction)
    assert method.loss(z_in, labels, z_out).item() == pytest.approx(expected, rel=1e-12)
    assert gradcheck(lambda x, o: method.loss(x, labels, o), (z_in.requires_grad_(), z_out.requires_grad_()))


def test_the_mean_with_weights_times_the_batch_is_the_sum() -> None:
    torch.manual_seed(1)
    z_in, z_out, labels = torch.randn(6, 3), torch.randn(8, 3), torch.randint(3, (6,))
    mean = ConfidenceControl(weight_in=6 * 0.07, weight_out=8 * 0.05, accuracy=0.8, reduction="mean")
    total = ConfidenceControl(accuracy=0.8).loss(z_in, labels, z_out)
    torch.testing.assert_close(mean.loss(z_in, labels, z_out), total)


def test_uniform_outliers_and_an_honest_confidence_cost_nothing() -> None:
    # Two classes with p = 0.75 on every ID image, of which three in four are right.
    z_in = torch.tensor([[math.log(3.0), 0.0]]).repeat(4, 1)
    labels = torch.tensor([0, 0, 0, 1])
    method = methods.build("oecc", {"accuracy": 0.75})
    assert method.loss(z_in, labels, torch.zeros(5, 2)).item() == pytest.approx(cross_entropy(z_in, labels).item())


def test_the_accuracy_is_that_of_the_starting_network_on_the_first_batch() -> None:
    torch.manual_seed(2)
    head = nn.Linear(12, 3)
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), head)
    given = Batch(torch.rand(40, 3, 2, 2), torch.randint(3, (40,)), torch.rand(4, 3, 2, 2))
    prepared = ConfidenceControl().prepare(net, given)
    predicted = (given.images.flatten(1) @ head.weight.T + head.bias).argmax(1)
    assert prepared.accuracy == pytest.approx((predicted == given.labels).double().mean().item())
    assert net.training and ConfidenceControl(accuracy=0.5).prepare(net, given).accuracy == 0.5
    with pytest.raises(TypeError, match=r"call prepare\(\) first"):
        ConfidenceControl().loss(torch.randn(2, 3), torch.zeros(2).long(), torch.randn(2, 3))
