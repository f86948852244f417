"""Validation after each epoch: the same numbers computed another way, and a training that it does not disturb."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from elsewhere import run_elsewhere
from sklearn.metrics import roc_auc_score
from test_training import SHORT, TwoLayers, same, small_net, weights
from torch import Tensor, nn

import macs
from macs import methods
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.methods import Method
from macs.training.runs import Epoch, RunFolder
from macs.training.validation import Validation, validation_on
from tiny import STRIPES, noise, stripes

OTHERS = noise(90, seed=8)
EPOCH = Epoch(1, 0.5, 0.5, 0.5, 0.5, 0.1, 0.01, 1.0, 9.0)


def logits_of(net: nn.Module, images: ImageSet) -> Tensor:
    with torch.no_grad():
        return net(torch.from_numpy(images.pixels[:]).permute(0, 3, 1, 2) / 255)


@pytest.mark.parametrize(
    ("method", "confidence"),
    [("macs", lambda logits: logits.softmax(1).amax(1)), ("energy", lambda logits: logits.logsumexp(1))],
)
def test_accuracy_and_auroc_are_those_of_the_methods_own_score(
    method: str, confidence: Callable[[Tensor], Tensor], known_test: ImageSet
) -> None:
    net = small_net().eval()
    epoch = Validation(known_test, OTHERS).measured(EPOCH, net, methods.build(method), "float32")
    known, unknown = logits_of(net, known_test), logits_of(net, OTHERS)
    is_known = np.r_[np.ones(len(known)), np.zeros(len(unknown))]
    auroc = roc_auc_score(is_known, np.r_[confidence(known), confidence(unknown)])
    assert epoch.validation_auroc == pytest.approx(auroc, abs=1e-4)
    accuracy = (known.argmax(1).numpy() == known_test.labels).mean()
    assert epoch.validation_accuracy == pytest.approx(accuracy)
    assert replace(epoch, validation_accuracy=None, validation_auroc=None) == EPOCH
    alone = Validation(known_test).measured(EPOCH, net, methods.build(method), "float32")
    assert (alone.validation_accuracy, alone.validation_auroc) == (epoch.validation_accuracy, None)


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


@dataclass(frozen=True)
class Neighbours(Method):
    """A method of somebody who detects with a score that has to be fitted."""

    score: ClassVar[str] = "knn"


def test_images_that_cannot_be_validated_on_are_refused(known: ImageSet, known_test: ImageSet) -> None:
    method = methods.build("macs")
    plain = ImageSet.from_array(known_test.pixels[:], name="plain")
    cases: list[tuple[Any, Any, str]] = [
        (None, OTHERS, "give these as well"),
        ("val/", None, "validation images must be an ImageSet, not the path"),
        (known_test, "val/", "validation outliers must be an ImageSet, not the path"),
        (plain, None, "plain has no labels to validate with"),
        (known, None, "are the training images of stripes themselves"),
        (replace(known_test, classes=STRIPES[::-1]), None, "but the training images have horizontal, vertical, plain"),
        (stripes(20, seed=2, size=12), None, "stripes is 16 pixels wide and stripes 12"),
        (known_test, noise(20, seed=2, size=12), "stripes is 16 pixels wide and noise 12"),
    ]
    for images, others, words in cases:
        with pytest.raises(MacsError, match=words):
            validation_on(images, others, known, method)
    with pytest.raises(MacsError, match="detects with knn, which is fitted after the training"):
        validation_on(known_test, OTHERS, known, Neighbours())
    assert validation_on(known_test, None, known, Neighbours()) == Validation(known_test)
    assert validation_on(None, None, known, method) is None


def test_a_callback_that_cannot_be_called_is_refused_before_the_training(known: ImageSet) -> None:
    net = TwoLayers()
    before = weights(net)
    with pytest.raises(MacsError, match="on_epoch must be a function .* not a str"):
        macs.pretrain(net, known, recipe=SHORT, on_epoch=cast(Any, "print"), progress=False)
    assert same(weights(net), before)
