"""Frozen layers, learning rates and optimisers: what is trained, how fast, and what is left as it was."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from macs.core.errors import MacsError
from macs.training.optimisation import Optimisation, rate_at
from macs.training.recipe import Recipe
from short_training import SHORT, TwoLayers, small_net

CPU = torch.device("cpu")


def rates(recipe: Recipe, steps: int, highest: float | None = None) -> list[float]:
    count = recipe.epochs * steps
    return [rate_at(step, steps, recipe.lr if highest is None else highest, recipe) for step in range(count)]


def test_without_a_warm_up_the_rate_is_the_papers_cosine() -> None:
    recipe = Recipe(epochs=3, lr=0.1, final_lr=0.01)
    assert rates(recipe, 7) == [0.01 + (0.1 - 0.01) * (1 + math.cos(math.pi * i / 21)) / 2 for i in range(21)]


def test_a_rising_cosine_goes_on_where_a_falling_one_ends_and_comes_back() -> None:
    recipe = Recipe(epochs=3, lr=0.1, final_lr=0.01)
    falling, rising = rates(recipe, 7), rates(replace(recipe, cosine="rising"), 7)
    assert rising[0] == pytest.approx(0.01)
    assert rising[1:] == pytest.approx(falling[:0:-1])


@pytest.mark.parametrize(("warmup", "warm"), [(0.5, 4), (1, 8), (2, 16), (3, 24)])
def test_the_warm_up_is_a_straight_line_to_where_the_cosine_starts(warmup: float, warm: int) -> None:
    recipe = Recipe(epochs=3, lr=0.1, final_lr=0.0, warmup=warmup)
    found = rates(recipe, 8)
    assert found[:warm] == pytest.approx([0.1 / (warm + 1) * (i + 1) for i in range(warm)])
    torch_cosine = torch.optim.lr_scheduler.CosineAnnealingLR(
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1), max(1, 24 - warm)
    )
    for rate in found[warm:]:
        assert rate == pytest.approx(torch_cosine.get_last_lr()[0])
        torch_cosine.optimizer.step()
        torch_cosine.step()
    assert rates(recipe, 8, highest=0.3)[:20] == pytest.approx([3 * rate for rate in found[:20]])


def test_a_warm_up_longer_than_the_training_is_refused() -> None:
    with pytest.raises(MacsError, match="A warm-up of 2.5 epochs does not fit into 2"):
        Recipe(epochs=2, warmup=2.5)


def test_the_last_layer_has_a_rate_of_its_own_with_the_same_schedule() -> None:
    net = small_net()
    recipe = replace(SHORT, lr=0.1, head_lr=0.4, final_lr=0.0, warmup=0.5)
    tuning = Optimisation.of(net, recipe, (3, 16, 16))
    optimizer = tuning.optimizer(CPU)
    rest, head = optimizer.param_groups
    assert {*map(id, head["params"])} == {id(net.fc.weight), id(net.fc.bias)}
    assert len(rest["params"]) + 2 == len([*net.parameters()])
    for step in range(12):
        assert tuning.set_rates(optimizer, step, 6) == rest["lr"] == rate_at(step, 6, 0.1, recipe)
        assert head["lr"] == pytest.approx(4 * rest["lr"])


def test_frozen_parameters_are_not_in_the_optimizer() -> None:
    net = small_net()
    for freeze, count in (("none", len([*net.parameters()])), ("backbone", 2), ("block3", 4)):
        groups = Optimisation.of(net, replace(SHORT, freeze=freeze), (3, 16, 16)).optimizer(CPU).param_groups
        assert [len(group["params"]) for group in groups] == [count]
    (group,) = (
        Optimisation.of(net, replace(SHORT, freeze="backbone", head_lr=0.7), (3, 16, 16)).optimizer(CPU).param_groups
    )
    assert group["lr"] == 0.7


class Dropping(TwoLayers):
    """Dropout before and after the layer that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(768, 16), nn.Dropout(0.5), nn.Linear(16, 8), nn.Dropout(0.5), nn.Linear(8, 3)
        )


def test_dropout_is_off_only_where_the_network_is_frozen() -> None:
    net = Dropping()
    tuning = Optimisation.of(net, Recipe(freeze="layers.3"), (3, 16, 16))
    with tuning.frozen.inside(net):
        net.train()(torch.rand(2, 3, 16, 16))
        assert [layer.training for layer in net.layers] == [False, False, False, False, True, True]
    tuning = Optimisation.of(net, Recipe(freeze="backbone"), (3, 16, 16))
    with tuning.frozen.inside(net):
        first, second = (net.train()(torch.ones(2, 3, 16, 16)) for _ in range(2))
    assert torch.equal(first, second)
