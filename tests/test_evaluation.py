"""Evaluation: the table's numbers recomputed by scikit-learn from the network's own outputs."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

import macs
from conftest import noise
from macs.errors import MacsError


class Brightness(nn.Module):
    """Logits from an image's mean brightness, so that the answers can be computed without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, pixels: Tensor) -> Tensor:
        self.calls += len(pixels)
        bright = pixels.mean(dim=(1, 2, 3))
        return self.scale * torch.stack([bright, 1 - bright, torch.full_like(bright, 0.4)], dim=1)


@pytest.fixture
def table(known_test, outliers):
    return macs.evaluate(Brightness(), known_test, {"noise": outliers, "more": noise(50, seed=8)}, progress=False)


def by_hand(images) -> tuple[np.ndarray, np.ndarray]:
    bright = images.pixels[:].mean(axis=(1, 2, 3)) / 255
    logits = np.stack([bright, 1 - bright, np.full_like(bright, 0.4)], axis=1)
    return logits.argmax(1), (np.exp(logits) / np.exp(logits).sum(1, keepdims=True)).max(1)


def test_the_full_protocol_agrees_with_scikit_learn(table, known_test, outliers):
    predictions, conf_in = by_hand(known_test)
    _, conf_out = by_hand(outliers)
    is_ood = np.r_[np.zeros(len(conf_in)), np.ones(len(conf_out))]
    unsure = -np.r_[conf_in, conf_out]
    assert table.accuracy == pytest.approx((predictions == known_test.labels).mean())
    assert table.sets[0].full.auroc == pytest.approx(roc_auc_score(is_ood, unsure), abs=1e-4)
    assert table.sets[0].full.aupr == pytest.approx(average_precision_score(is_ood, unsure), abs=1e-4)


def test_every_image_passes_through_the_network_once(known_test, outliers):
    net = Brightness()
    macs.evaluate(net, known_test, {"noise": outliers}, trials=10, progress=False)
    assert net.calls == len(known_test) + len(outliers)


def test_draws_scatter_around_the_full_result_and_follow_the_seed(known_test, outliers):
    full, again, other = (
        macs.evaluate(Brightness(), known_test, {"noise": outliers}, trials=200, seed=seed, progress=False)
        for seed in (0, 0, 1)
    )
    assert full == again != other
    draws = full.draw_means("auroc")
    assert np.mean(draws) == pytest.approx(full.mean("auroc"), abs=5 * np.std(draws) / np.sqrt(200))
    assert np.std(draws) > 0


def test_the_mean_row_is_the_mean_of_the_sets(table):
    assert table.mean("fpr95") == pytest.approx(np.mean([result.full.fpr95 for result in table.sets]))


def test_json_holds_every_draw_and_names_its_conventions(table):
    value = json.loads(json.dumps(table.as_dict()))
    assert len(value["ood"]["noise"]["draws"]) == 10
    assert value["ood"]["noise"]["images"] == 256 and value["id"]["images"] == 120
    assert "OOD positive" in value["conventions"]["fpr95"]


def test_the_printed_table_has_sizes_and_conventions(table):
    text = str(table)
    for words in ("120 ID images of stripes", "256", "OOD as positive", "10 draws of 24 ID images", "mean"):
        assert words in text
    assert f"{100 * table.sets[0].full.auroc:.2f}" in text


def test_the_network_keeps_its_mode(known_test, outliers):
    net = Brightness().train()
    macs.evaluate(net, known_test, {"noise": outliers}, progress=False)
    assert net.training


def test_what_cannot_be_evaluated_is_refused(known_test, outliers):
    net = Brightness()
    with pytest.raises(MacsError, match="no labels"):
        macs.evaluate(net, outliers, {"x": known_test}, progress=False)
    with pytest.raises(MacsError, match="no OOD set"):
        macs.evaluate(net, known_test, {}, progress=False)
    with pytest.raises(MacsError, match="no score called 'mps'.*did you mean 'msp'"):
        macs.evaluate(net, known_test, {"x": outliers}, score="mps", progress=False)
    with torch.no_grad():
        net.scale.fill_(float("nan"))
    with pytest.raises(MacsError, match="not a number"):
        macs.evaluate(net, known_test, {"x": outliers}, progress=False)
