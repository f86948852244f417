"""Checkpointing: a state is restored whole or refused in one sentence, and no kill changes which epoch is kept."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from macs import methods, nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.methods import Method
from macs.training.checkpointing import Checkpointer
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder, kept_epoch
from macs.training.sources import Training
from short_training import EPOCH, SHORT, same, small_net, weights
from tiny import noise

ASIDE = {"best": replace(SHORT, keep="best"), "start": replace(SHORT, start_share=0.5)}


def checkpointer(
    folder: Path | None, train: ImageSet, outliers: ImageSet | None = None, recipe: Recipe = SHORT
) -> Checkpointer:
    """A new training of a small network, before its first step."""
    net = small_net()
    training = Training(net, train, outliers, methods.build("oe" if outliers else "msp"), recipe)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return Checkpointer(None if folder is None else RunFolder(folder), training, optimizer)


def epochs(*measured: tuple[float, float | None]) -> list[Epoch]:
    return [
        replace(Epoch(**EPOCH), epoch=number + 1, validation_accuracy=accuracy, validation_auroc=auroc)
        for number, (accuracy, auroc) in enumerate(measured)
    ]


def test_the_best_epoch_has_the_highest_mean_and_is_the_first_of_equals() -> None:
    history = epochs((0.8, 0.7), (0.7, 0.9), (0.9, 0.7), (0.95, 0.6))
    assert kept_epoch(history, "best") is history[1]
    assert kept_epoch(history, "last") is history[3]
    assert kept_epoch(epochs((0.8, None), (0.9, None), (0.9, None)), "best").epoch == 2


def test_without_a_folder_or_a_state_there_is_nothing_to_resume(known: ImageSet, tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        fresh = checkpointer(folder, known)
        assert fresh.restored(methods.build("msp")) is None and fresh.history == []


def test_a_state_is_restored_whole(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    """Weights, momenta, what the method took from the network, and the epochs; here without a loop around them."""
    method = methods.build("energy", {"m_in": -3.0, "m_out": -1.0})
    first = checkpointer(tmp_path, known, outliers)
    first.net(torch.rand(4, 3, 16, 16)).sum().backward()
    first.optimizer.step()
    first.add(Epoch(**EPOCH), method)

    fresh = checkpointer(tmp_path, known, outliers)
    fresh.optimizer.param_groups[0]["lr"] = 0.5
    (tmp_path / "metrics.jsonl").unlink()  # killed before they were written
    assert fresh.restored(methods.build("energy")) == method
    assert (fresh.history, fresh.aside) == ([Epoch(**EPOCH)], {})
    assert same(weights(fresh.net), weights(first.net)) and fresh.optimizer.param_groups[0]["lr"] == 0.1
    for one, two in zip(first.net.parameters(), fresh.net.parameters(), strict=True):
        assert torch.equal(first.optimizer.state[one]["momentum_buffer"], fresh.optimizer.state[two]["momentum_buffer"])
    assert RunFolder(tmp_path).epochs() == [Epoch(**EPOCH)]


@pytest.mark.parametrize("name", ["best", "start"])
def test_weights_aside_are_restored_if_they_fit(name: str, known: ImageSet, tmp_path: Path) -> None:
    method: Method = methods.build("msp")
    run = checkpointer(tmp_path, known, recipe=ASIDE[name])
    run.history = epochs((0.5, None))
    others = {key: value + 1 for key, value in weights(run.net).items()}
    for aside, words in (
        (others, ""),
        ({}, "another network"),
        (nets.build("wrn-16-1", 3).state_dict(), "another network"),
        ({key: value / 0 for key, value in others.items()}, "not finite"),
    ):
        run.aside = {name: aside}
        run.save(method)
        fresh = checkpointer(tmp_path, known, recipe=ASIDE[name])
        if words:
            with pytest.raises(MacsError, match=f"Cannot resume from .*{words}"):
                fresh.restored(method)
        else:
            fresh.restored(method)
            assert [*fresh.aside] == [name] and same(fresh.aside[name], others)
    with pytest.raises(MacsError, match="not the state of a run"):
        checkpointer(tmp_path, known).restored(method)  # of a run that has none


@pytest.mark.parametrize(("name", "words"), [("best", ""), ("start", "another network")])
def test_before_the_first_epoch_there_is_no_best_one(name: str, words: str, known: ImageSet, tmp_path: Path) -> None:
    method, run = methods.build("msp"), checkpointer(tmp_path, known, recipe=ASIDE[name])
    run.aside = {name: {}}
    run.save(method)
    with pytest.raises(MacsError, match=words) if words else contextlib.nullcontext():
        checkpointer(tmp_path, known, recipe=ASIDE[name]).restored(method)


def test_images_are_known_by_their_fingerprints_and_classes(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    state = checkpointer(tmp_path, known, outliers).state(methods.build("msp"))
    assert state["classes"] == list(known.classes)
    assert state["images"] == [known.spec.fingerprint, outliers.spec.fingerprint]
    assert checkpointer(tmp_path, known).images == [known.spec.fingerprint]
    net = small_net()
    validated = Training(net, known, None, methods.build("msp"), SHORT, noise(9, seed=5))
    images = Checkpointer(RunFolder(tmp_path), validated, torch.optim.SGD(net.parameters())).images
    assert images == [known.spec.fingerprint, noise(9, seed=5).spec.fingerprint]
