"""What is refused or pointed out before a training, and what is said where its loss is no number any more."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import macs
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.training.sources import starting_net
from short_training import SHORT, small_net
from tiny import noise, stripes


def test_a_loss_that_is_not_finite_stops_the_run(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    recipe = replace(SHORT, lr=1000, options={"weight": 1e6})
    with pytest.raises(MacsError, match="not finite.*epoch 1.*unusually large: lr = 1000, weight = 1e.06[.]"):
        macs.finetune(small_net(), known, outliers, recipe=recipe, run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run/net.safetensors").exists()


class Exploding(nn.Module):
    """Fine until it has been trained for a step."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(768, 3)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.fc(pixels.flatten(1)) / (not self.training)


def test_a_loss_that_is_not_finite_blames_nothing_that_is_usual(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.raises(MacsError, match="no setting is unusually large"):
        macs.finetune(Exploding(), known, outliers, recipe=SHORT, progress=False)


def test_weights_that_are_not_finite_are_refused_before_training(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    net = small_net()
    with torch.no_grad():
        net.get_parameter("fc.bias")[0] = torch.nan
    with pytest.raises(MacsError, match="before any training"):
        macs.finetune(net, known, outliers, recipe=SHORT, run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("train", "others", "words"),
    [
        (noise(64, seed=1), noise(64, seed=2), "no labels"),
        (stripes(64, seed=1), None, "needs outliers"),
        (stripes(64, seed=1), noise(64, seed=2, size=32), "must have one size"),
        (stripes(64, seed=1), replace(stripes(64, seed=1), labels=None, name="others"), "training images of stripes"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(train: Any, others: Any, words: Any) -> None:
    with pytest.raises(MacsError, match=words):
        macs.finetune(small_net(), train, others, recipe=SHORT, progress=False)


def test_labels_that_the_network_has_no_output_for_are_refused(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.raises(MacsError, match="2 outputs"):
        macs.finetune(small_net(classes=2), known, outliers, recipe=SHORT, progress=False)


def test_a_network_without_weights_to_train_is_refused(known: ImageSet, outliers: ImageSet) -> None:
    frozen = small_net().requires_grad_(False)
    with pytest.raises(MacsError, match="no weights to train"):
        macs.finetune(frozen, known, outliers, recipe=SHORT, progress=False)


def test_no_share_of_random_weights_is_kept(known: ImageSet, outliers: ImageSet) -> None:
    net, recipe = starting_net("wrn-10-1", 3), replace(SHORT, start_share=0.5)
    with pytest.raises(MacsError, match="these are random; start from a trained classifier"):
        macs.finetune(net, known, outliers, recipe=recipe, progress=False)
    macs.finetune(net, known, outliers, recipe=SHORT, progress=False)
    macs.finetune(net, known, outliers, recipe=recipe, progress=False)  # now they are not


def test_outputs_that_no_image_belongs_to_are_pointed_out(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.warns(MacsWarning, match="1000 outputs, but no image of stripes belongs to 997 of them"):
        macs.finetune(small_net(classes=1000), known, outliers, recipe=replace(SHORT, epochs=1), progress=False)
