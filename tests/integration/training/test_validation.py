"""Validation after each epoch: the same numbers computed another way, and a training that it does not disturb."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import macs
from elsewhere import run_elsewhere
from macs import methods
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.runs import Epoch, RunFolder
from short_training import SHORT, TwoLayers, same, small_net, weights
from tiny import noise

OTHERS = noise(90, seed=8)


@pytest.mark.parametrize("method", ["macs", "divoe"])
def test_validation_and_a_callback_that_draws_random_numbers_change_no_bit(
    method: str, known: ImageSet, known_test: ImageSet, outliers: ImageSet
) -> None:
    """The network has dropout, and DivOE draws random numbers in every step."""
    start = small_net()

    def meddle(epoch: Epoch, net: nn.Module) -> None:
        torch.manual_seed(epoch.epoch)
        np.random.default_rng().random()
        assert not any(module.training for module in net.modules())
        net.train()

    plain, watched = copy.deepcopy(start), copy.deepcopy(start)
    macs.finetune(plain, known, outliers, method=method, recipe=SHORT, progress=False)
    history = macs.finetune(
        watched,
        known,
        outliers,
        method=method,
        recipe=SHORT,
        validation=known_test,
        validation_outliers=OTHERS,
        on_epoch=meddle,
        progress=False,
    )
    assert same(weights(plain), weights(watched)) and not watched.training
    last = macs.evaluate(
        watched, known_test, {"noise": OTHERS}, score=methods.build(method).score, precision="float32", progress=False
    )
    assert history[-1].validation_accuracy == last.accuracy
    assert history[-1].validation_auroc == last.sets[0].full.auroc
    assert history[0].validation_auroc != history[1].validation_auroc


def test_pretraining_is_validated_without_outliers(known: ImageSet, known_test: ImageSet, tmp_path: Path) -> None:
    seen = []
    history = macs.pretrain(
        small_net(),
        known,
        recipe=SHORT,
        validation=known_test,
        run=tmp_path / "run",
        progress=False,
        on_epoch=lambda epoch, net: seen.append((epoch, macs.evaluate(net, known_test, {"n": OTHERS}).accuracy)),
    )
    assert [accuracy for _, accuracy in seen] == [epoch.validation_accuracy for epoch in history]
    assert [replace(epoch, kept=None) for epoch in history] == [epoch for epoch, _ in seen]
    assert RunFolder(tmp_path / "run").epochs() == history
    assert {epoch.validation_auroc for epoch in history} == {None}


def test_what_a_callback_raises_ends_the_training_and_loses_nothing(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    class Enough(Exception):
        pass

    def stop(epoch: Epoch, net: nn.Module) -> None:
        raise Enough

    whole, stopped = small_net(), small_net()
    macs.finetune(whole, known, outliers, recipe=SHORT, progress=False)
    with pytest.raises(Enough):
        macs.finetune(stopped, known, outliers, recipe=SHORT, run=tmp_path / "run", on_epoch=stop, progress=False)
    assert len(RunFolder(tmp_path / "run").epochs()) == 1
    macs.finetune(stopped, known, outliers, recipe=SHORT, run=tmp_path / "run", resume=True, progress=False)
    assert same(weights(whole), weights(stopped))


def test_another_process_gets_the_same_bits_from_the_record_alone(tmp_path: Path) -> None:
    train, val = macs.data.load("digits", "train", size=8), macs.data.load("digits", "val", size=8)
    outliers, others = (macs.data.load("digits-outliers", split, size=8, labelled=False) for split in ("train", "val"))
    recipe = replace(SHORT, epochs=2, epoch_size=128, keep="best")
    net = macs.training.starting_net("wrn-10-1", classes=len(train.classes), seed=3)
    history = macs.finetune(
        net,
        train,
        outliers,
        recipe=recipe,
        validation=val,
        validation_outliers=others,
        run=tmp_path / "one",
        progress=False,
    )
    spec = RunFolder(tmp_path / "one").spec
    assert (spec.validation, spec.validation_outliers) == (val.spec, others.spec)
    run_elsewhere(tmp_path / "one/recipe.toml", tmp_path / "two")
    files = [tmp_path / name / "net.safetensors" for name in ("one", "two/run")]
    assert files[0].read_bytes() == files[1].read_bytes()
    again = RunFolder(tmp_path / "two/run").epochs()
    assert [(epoch.merit, epoch.kept) for epoch in again] == [(epoch.merit, epoch.kept) for epoch in history]


def test_a_callback_that_cannot_be_called_is_refused_before_the_training(known: ImageSet) -> None:
    net = TwoLayers()
    before = weights(net)
    with pytest.raises(MacsError, match="on_epoch must be a function .* not a str"):
        macs.pretrain(net, known, recipe=SHORT, on_epoch=cast(Any, "print"), progress=False)
    assert same(weights(net), before)
