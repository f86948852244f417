"""Trainings on rows of features: the same as those of a last layer on images, with outliers and without."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from macs import FeatureSet, ImageSet, MacsError, Recipe, finetune, pretrain, scores
from macs.inference import outputs_of
from macs.metrics import ood_metrics
from macs.training import Epoch
from tiny import noise, stripes


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 5))


@pytest.mark.parametrize(
    ("outliers", "changes", "message"),
    [
        (ImageSet.from_array(np.zeros((9, 5, 5, 3), np.uint8)), {}, "images alone, or features alone"),
        (FeatureSet.from_array(np.ones((9, 4))), {}, "array has 5 and array 4"),
        (FeatureSet.from_array(np.ones((9, 5))), {"method": "divoe"}, "the method divoe would change"),
        (FeatureSet.from_array(np.ones((9, 5))), {"recipe": Recipe(jitter=0.1)}, "jitter would change"),
        (FeatureSet.from_array(np.ones((9, 5))), {"recipe": Recipe(outlier_mix="diverse")}, "outlier_mix diverse"),
        (FeatureSet.from_array(np.ones((9, 5))), {"recipe": Recipe(augment="crop")}, "augment crop would change"),
    ],
)
def test_trainings_that_are_refused(outliers: ImageSet, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MacsError, match=message):
        finetune(nn.Linear(5, 3), FeatureSet.from_array(rows(9), np.arange(9) % 3), outliers, **changes)


def features_of(net: nn.Module, images: ImageSet) -> np.ndarray:
    return torch.cat([each.features for each in outputs_of(net, images, features=True)]).numpy()


def test_a_linear_layer_learns_what_the_last_layer_of_a_frozen_network_learns() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 12), nn.ReLU(), nn.Linear(12, 3))
    images, outliers = stripes(90, seed=0), noise(70, seed=1)
    head = copy.deepcopy(net[3])
    known = FeatureSet.from_array(features_of(net, images), images.labels)
    others = FeatureSet.from_array(features_of(net, outliers))
    recipe = Recipe(epochs=2, lr=0.05, batch_in=32, batch_out=32, margin=0.5)
    finetune(head, known, others, recipe=recipe, progress=False)
    frozen = Recipe(epochs=2, lr=0.05, batch_in=32, batch_out=32, margin=0.5, freeze="backbone")
    finetune(net, images, outliers, recipe=frozen, progress=False)
    torch.testing.assert_close(head.weight, net[3].weight)
    torch.testing.assert_close(head.bias, net[3].bias)


def test_an_mlp_learns_to_doubt_outliers(tmp_path: object) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(600) % 3
    known = FeatureSet.from_array(random.normal(3 * np.eye(3)[labels], 0.5), labels)
    outliers, unknown = (FeatureSet.from_array(random.normal(3 * np.ones(3), 0.5, (300, 3))) for _ in range(2))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 3))
    pretrain(net, known, recipe=Recipe(epochs=4, lr=0.1, batch_in=32, batch_out=0), progress=False)

    def auroc() -> float:
        ours, theirs = (scores.ask(net, rows, "msp").confidence for rows in (known, unknown))
        return ood_metrics(ours, theirs).auroc

    before = auroc()
    recipe = Recipe(epochs=4, lr=0.1, batch_in=32, batch_out=32)
    history: list[Epoch] = finetune(
        net,
        known,
        outliers,
        recipe=recipe,
        validation=known.subset(np.arange(60)),
        validation_outliers=unknown,
        run=f"{tmp_path}/run",
        progress=False,
    )
    assert auroc() > max(before, 0.99) and history[-1].accuracy > 0.95
    assert history[-1].validation_auroc > 0.99
