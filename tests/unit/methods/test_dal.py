"""DAL: its search against one written out image by image, its gradients, and a gamma that survives a resume."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from macs import methods, nets
from macs.core.errors import MacsError
from macs.methods import Batch, Step
from macs.methods.dal import DistributionAugmentedLearning
from macs.training.recipe import Recipe
from macs.training.training_batches import MicroBatched, features_suffice


def two_layers(features: int = 5, classes: int = 4) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(48, features), nn.Tanh(), nn.Linear(features, classes))


def batch(n_in: int = 6, n_out: int = 7) -> Batch:
    torch.manual_seed(1)
    return Batch(torch.rand(n_in, 3, 4, 4), torch.randint(4, (n_in,)), torch.rand(n_out, 3, 4, 4))


def written_out(start: Tensor, features: Tensor, head: nn.Linear, method: Any) -> tuple[list[list[float]], float]:
    """The shifts, one image after another in plain numbers, and mean |p| before the last step."""
    n, d, k = *features.shape, head.out_features
    w, b = head.weight.tolist(), head.bias.tolist()
    shifts, size = start.tolist(), 0.0
    for _ in range(method.steps):
        size = sum(abs(v) for p in shifts for v in p) / (n * d)
        for h, p in zip(features.tolist(), shifts, strict=True):
            z = [sum(w[c][f] * (h[f] + p[f]) for f in range(d)) + b[c] for c in range(k)]
            total = sum(math.exp(v) for v in z)
            pull = [(math.exp(v) / total - 1 / k) / n for v in z]
            slope = [
                sum(pull[c] * w[c][f] for c in range(k)) - method.gamma * math.copysign(1, p[f]) / (n * d)
                for f in range(d)
            ]
            length = math.sqrt(sum(v * v for v in slope))
            for f in range(d):
                p[f] += method.strength * slope[f] / length
    return shifts, size


def stepped(method: Any, net: nn.Module, given: Batch, seed: int = 2) -> Step:
    torch.manual_seed(seed)
    step = method.step(net, given)
    assert isinstance(step, Step)
    return step


@pytest.mark.parametrize("settings", [{}, {"gamma": 0.5, "strength": 0.3, "steps": 4, "rho": 0.2, "beta": 0.1}])
def test_the_search_is_its_equations_written_out(settings: dict[str, Any]) -> None:
    net, given, method = two_layers(), batch(), DistributionAugmentedLearning(weight=0.7, **settings)
    step = stepped(method, net, given)
    torch.manual_seed(2)
    start = 1e-4 * torch.rand(7, 5)
    features = net[:3](given.outliers)
    shifts, size = written_out(start, features, net[3], method)
    worst = net[3](features + torch.tensor(shifts))
    uniform = torch.full((7, 4), 0.25)
    expected = cross_entropy(net(given.images), given.labels) + 0.7 * cross_entropy(worst, uniform)
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(step.logits_out, net(given.outliers))
    for ours, theirs in zip(
        *(torch.autograd.grad(loss, [*net.parameters()]) for loss in (step.loss, expected)), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    gamma = min(max(method.gamma - method.beta * (method.rho - size), 0.0), 10.0)
    assert isinstance(step.method, DistributionAugmentedLearning)
    assert step.method.gamma == pytest.approx(gamma, rel=1e-5) and replace(step.method, gamma=method.gamma) == method


def test_the_gradient_passes_finite_differences() -> None:
    """With the shift held fixed, as in training."""
    net, given = two_layers(), batch()
    method = DistributionAugmentedLearning()
    step = stepped(method, net, given)
    slopes = torch.autograd.grad(step.loss, [*net.parameters()])
    torch.manual_seed(2)
    start = 1e-4 * torch.rand(len(given.outliers), 5)
    shift, _ = method.search(net(given.outliers).detach(), net[3].weight.detach(), start)
    directions = [torch.randn_like(parameter) for parameter in net.parameters()]

    def loss(along: float) -> float:
        moved = two_layers().double()
        with torch.no_grad():
            for parameter, direction in zip(moved.parameters(), directions, strict=True):
                parameter.add_(along * direction)
            worst = moved[3](moved[:3](given.outliers.double()) + shift.double())
            own = cross_entropy(moved(given.images.double()), given.labels)
            return (own + 0.5 * cross_entropy(worst, torch.full((7, 4), 0.25).double())).item()

    expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert sum((s * d).sum().item() for s, d in zip(slopes, directions, strict=True)) == pytest.approx(
        expected, rel=1e-3
    )


def test_the_moved_outliers_are_harder_and_a_flat_loss_moves_nothing() -> None:
    net, given = two_layers(), batch()
    worst = stepped(DistributionAugmentedLearning(), net, given).loss
    assert worst > methods.build("oe").step(net, given).loss
    with torch.no_grad():
        net[3].weight.zero_()
    step = stepped(DistributionAugmentedLearning(gamma=0.0), net, given)  # no slope at all: nothing to divide by
    assert step.loss.item() == pytest.approx(methods.build("oe").step(net, given).loss.item())


def test_gamma_holds_the_shift_near_rho() -> None:
    net, given = two_layers(), batch(n_out=40)
    sizes = {}
    for rho in (0.05, 0.1):
        method: Any = DistributionAugmentedLearning(rho=rho, beta=0.05, strength=0.05)
        for _ in range(150):
            method = stepped(method, net, given).method
        torch.manual_seed(2)
        start = 1e-4 * torch.rand(len(given.outliers), 5)
        _, found = method.search(net(given.outliers).detach(), net[3].weight.detach(), start)
        sizes[rho] = found.mean().item()
        assert 0 < method.gamma < 10
    assert sizes == pytest.approx({0.05: 0.05, 0.1: 0.1}, rel=0.3)


def test_a_method_is_followed_only_by_its_own_kind() -> None:
    step = stepped(DistributionAugmentedLearning(), two_layers(), batch())
    methods.check_step(step, DistributionAugmentedLearning())
    with pytest.raises(MacsError, match="followed by one of its kind"):
        methods.check_step(step._replace(method=methods.build("oe")), DistributionAugmentedLearning())


def test_features_are_enough_for_it_and_parts_of_a_batch_too() -> None:
    recipe = Recipe(freeze="backbone")
    net: Any = nets.build("wrn-10-1", classes=4)
    assert features_suffice(net, methods.build("dal"), recipe, (3, 16, 16))
    plain, given = two_layers(), batch()
    features = replace(given, images=plain[:3](given.images), outliers=plain[:3](given.outliers))
    method = DistributionAugmentedLearning()
    losses = [stepped(method, run, each).loss.item() for run, each in ((plain, given), (plain[3], features))]
    losses.append(stepped(method, MicroBatched(plain, 3), given).loss.item())
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)
    for run in (plain, MicroBatched(plain, 3)):
        assert method.prepare(run, given) is method


def test_a_network_that_does_not_end_with_a_linear_layer_is_refused() -> None:
    torch.manual_seed(0)
    followed = nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.Softplus())
    without = nn.Sequential(nn.Conv2d(3, 4, 4), nn.Flatten())
    for net in (followed, without):
        with pytest.raises(MacsError, match="must end with a linear one"):
            DistributionAugmentedLearning().prepare(net, batch())
        assert net.training
