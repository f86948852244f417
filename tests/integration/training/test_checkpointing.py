"""The state of a run between two epochs: put back whole, or refused in one sentence with nothing changed."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import macs
from macs import nets
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.runs import RunFolder
from short_training import EPOCH, SHORT, same, small_net, weights
from tiny import noise


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def interrupted(known: ImageSet, outliers: ImageSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first epoch."""

    def stop(*_: object) -> None:
        raise Killed

    folder = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("macs.training.loop.TrainingProgress.epoch", stop)
        with pytest.raises(Killed):
            macs.finetune(small_net(), known, outliers, recipe=SHORT, run=folder, progress=False)
    torch.save({**torch.load(folder / "state.pt"), "history": [EPOCH]}, folder / "state.pt")
    return folder


DAMAGE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a list": (lambda state: [state], "not the state of a run"),
    "a key less": (lambda state: {key: state[key] for key in state if key != "net"}, "not the state of a run"),
    "a key more": (lambda state: {**state, "x": 1}, "not the state of a run"),
    "no weights": (lambda state: {**state, "net": [1]}, "no weights"),
    "another network": (lambda state: {**state, "net": nets.build("wrn-16-1", 3).state_dict()}, "another network"),
    "more classes": (lambda state: {**state, "net": small_net(4).state_dict()}, "another network"),
    "weights not finite": (
        lambda state: {**state, "net": {key: value / 0 for key, value in state["net"].items()}},
        "not finite",
    ),
    "no optimizer": (lambda state: {**state, "optimizer": None}, "another optimizer"),
    "another optimizer": (
        lambda state: {**state, "optimizer": torch.optim.Adam(small_net().parameters()).state_dict()},
        "another optimizer",
    ),
    "other momenta": (
        lambda state: {**state, "optimizer": {**state["optimizer"], "state": {0: {"momentum_buffer": torch.ones(7)}}}},
        "another optimizer",
    ),
    "another method": (lambda state: {**state, "method": {"eps": 1.0}}, "another method"),
    "a wrong setting": (lambda state: {**state, "method": {"weight": "much"}}, "weight must be a number"),
    "other classes": (lambda state: {**state, "classes": ["a", "b", "c"]}, "other classes"),
    "other images": (lambda state: {**state, "images": ["a", "b"]}, "other images"),
    "no history": (lambda state: {**state, "history": 7}, "not the epochs of a training"),
    "half an epoch": (lambda state: {**state, "history": [{"epoch": 1}]}, "not the epochs of a training"),
    "a loss in words": (lambda state: {**state, "history": [{**EPOCH, "loss": "low"}]}, "loss must be a number"),
    "an epoch missing": (lambda state: {**state, "history": [{**EPOCH, "epoch": 2}]}, "epochs are missing"),
    "too many epochs": (
        lambda state: {**state, "history": [{**EPOCH, "epoch": epoch} for epoch in (1, 2, 3)]},
        "3 epochs, but the recipe has 2",
    ),
}


def resume_refused(run: Path, words: str, known: ImageSet, outliers: ImageSet) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    net = small_net()
    with pytest.raises(MacsError, match=words):
        macs.finetune(net, known, outliers, recipe=SHORT, run=run, resume=True, progress=False)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    assert same(weights(net), weights(small_net()))


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_state_that_does_not_fit_is_refused_and_nothing_changes(
    damage: Any, interrupted: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    change, words = DAMAGE[damage]
    run = tmp_path / "run"
    shutil.copytree(interrupted, run)
    torch.save(change(torch.load(run / "state.pt")), run / "state.pt")
    resume_refused(run, f"Cannot resume from .*state.pt.*{words}.*another folder", known, outliers)


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04", bytes(range(256)), b"cos\nsystem\n(S'true'\ntR."])
def test_a_state_that_cannot_be_read_is_refused(
    content: Any, interrupted: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(interrupted, run)
    (run / "state.pt").write_bytes(content)
    resume_refused(run, "state.pt is damaged", known, outliers)


def test_other_images_or_classes_of_the_same_name_are_another_run(
    interrupted: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    renamed = replace(known, classes=("a", "b", "c"))
    resume_refused(tmp_path / "run", "other classes", renamed, outliers)
    resume_refused(tmp_path / "run", "other outliers", known, noise(256, seed=4))


def test_metrics_that_a_kill_left_behind_are_made_good(
    interrupted: Any, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    shutil.copytree(interrupted, tmp_path / "run")
    (tmp_path / "run/metrics.jsonl").write_text("")
    macs.finetune(small_net(), known, outliers, recipe=SHORT, run=tmp_path / "run", resume=True, progress=False)
    assert [epoch.epoch for epoch in RunFolder(tmp_path / "run").epochs()] == [1, 2]
