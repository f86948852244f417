"""Frozen layers, learning rates and optimisers: what is trained, how fast, and what is left as it was."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import macs
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.recipe import Recipe
from short_training import SHORT, TwoLayers, same, small_net, stopping, weights


def changed(net: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, value in net.state_dict().items() if not torch.equal(value, before[name])}


def test_adamw_takes_the_steps_of_torchs_own(known: ImageSet) -> None:
    """One step over the whole set, computed by hand; momentum is the first beta."""
    recipe = Recipe(
        epochs=1, batch_in=192, augment="none", optimizer="adamw", lr=0.01, momentum=0.8, weight_decay=0.1, batch_out=0
    )
    net = TwoLayers()
    by_hand = copy.deepcopy(net)
    macs.pretrain(net, known, recipe=recipe, progress=False)
    pixels = torch.from_numpy(known.pixels[:]).permute(0, 3, 1, 2) / 255
    nn.functional.cross_entropy(by_hand(pixels), torch.from_numpy(known.labels)).backward()
    for name, parameter in by_hand.named_parameters():
        mean, square = 0.2 * parameter.grad, 0.001 * parameter.grad**2
        expected = parameter * (1 - 0.01 * 0.1) - 0.01 * (mean / 0.2) / ((square / 0.001).sqrt() + 1e-8)
        assert torch.allclose(net.get_parameter(name), expected, atol=1e-4)


@pytest.mark.parametrize("method", ["macs", "divoe", "energy"])  # the last two change the network's mode
@pytest.mark.parametrize(
    ("freeze", "trained"),
    [
        ("backbone", ("fc",)),
        ("block2", ("block3", "bn1", "fc")),
        ("block3.layer.0.bn1", ("block3.layer.0.conv", "block3.layer.0.bn2", "bn1", "fc")),
        ("bn1", ("fc",)),
    ],
)
def test_frozen_layers_keep_weights_and_statistics(
    freeze: str, trained: tuple[str, ...], method: str, known: ImageSet, outliers: ImageSet
) -> None:
    net = small_net()
    net.block3.requires_grad_(False)[0].requires_grad_(True)
    before, required = weights(net), [parameter.requires_grad for parameter in net.parameters()]
    recipe = replace(SHORT, epochs=1, freeze=freeze, epoch_size=64)
    macs.finetune(net, known, outliers, method=method, recipe=recipe, progress=False)
    assert changed(net, before) == {name for name in before if name.startswith(trained)}
    assert [parameter.requires_grad for parameter in net.parameters()] == required
    assert not net._forward_pre_hooks


def test_an_unknown_layer_is_one_sentence_with_the_names_that_can_be_given(known: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(MacsError) as caught:
        macs.pretrain(small_net(), known, recipe=replace(SHORT, freeze="layer3"), run=tmp_path / "run", progress=False)
    assert str(caught.value).startswith("There is no layer of wrn-10-1 called 'layer3'")
    assert str(caught.value).endswith("choose one of none, backbone, conv1, block1, block2, block3, bn1.")
    assert not (tmp_path / "run").exists()
    for freeze in ("fc", "layers"):
        net = small_net() if freeze == "fc" else TwoLayers()
        with pytest.raises(MacsError, match=f"With {freeze} frozen, .* has no weights left to train; freeze less"):
            macs.pretrain(net, known, recipe=replace(SHORT, freeze=freeze), progress=False)


class Convolutions(nn.Module):
    """Ends in a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 3, 3)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.last(self.first(pixels)).mean(dim=(2, 3))


def test_a_network_without_a_linear_layer_is_frozen_by_name_alone(known: ImageSet) -> None:
    net = Convolutions()
    for settings in ({"freeze": "backbone"}, {"head_lr": 0.1}):
        with pytest.raises(MacsError, match="has no linear layer as its last one"):
            macs.pretrain(net, known, recipe=replace(SHORT, **settings), progress=False)
    before = weights(net)
    macs.pretrain(net, known, recipe=replace(SHORT, freeze="first"), progress=False)
    assert changed(net, before) == {"last.weight", "last.bias"}


def test_a_run_with_adamw_and_a_rate_for_the_head_is_resumed(
    known: ImageSet, outliers: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(SHORT, optimizer="adamw", head_lr=0.1, warmup=0.5, balance=True, lr=0.01)
    whole = small_net()
    macs.finetune(whole, known, outliers, recipe=recipe, progress=False)
    stopping(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        macs.finetune(small_net(), known, outliers, recipe=recipe, run=tmp_path / "run", progress=False)
    monkeypatch.undo()
    resumed = small_net()
    macs.finetune(resumed, known, outliers, recipe=recipe, run=tmp_path / "run", resume=True, progress=False)
    assert same(weights(resumed), weights(whole))
