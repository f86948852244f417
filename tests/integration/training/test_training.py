"""Training: it learns, it is determined by its seed, and neither a kill nor a mistake loses anything."""

import copy
import json
import logging
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

import macs
from cases import slow
from elsewhere import start_training
from macs import nets
from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet
from macs.training.recipe import FROM_LIBRARY, PRETRAINING
from macs.training.runs import RunFolder
from macs.training.spec import METHODS
from short_training import SHORT, TwoLayers, same, small_net, weights
from tiny import noise, save, stripes


def test_pretraining_learns_the_classes(known: ImageSet, known_test: ImageSet, outliers: ImageSet) -> None:
    net = small_net()
    recipe = replace(PRETRAINING, epochs=6, batch_in=32, lr=0.05)
    history = macs.pretrain(net, known, recipe=recipe, progress=False)
    assert len(history) == 6 and history[-1].loss < history[0].loss
    assert macs.evaluate(net, known_test, {"noise": outliers}, progress=False).accuracy > 0.9


def test_training_in_bf16_learns_and_lets_no_library_speak(known: ImageSet) -> None:
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lightning_fabric")
    logger.addHandler(listener)
    try:
        recipe = replace(PRETRAINING, epochs=2, batch_in=32, lr=0.05, precision="bf16")
        history = macs.pretrain(small_net(), known, recipe=recipe, progress=False)
    finally:
        logger.removeHandler(listener)
    assert history[-1].loss < history[0].loss
    assert said == []


def test_exposure_lowers_the_confidence_on_outliers(known: ImageSet, known_test: ImageSet, outliers: ImageSet) -> None:
    net = small_net()
    macs.pretrain(net, known, recipe=replace(PRETRAINING, epochs=4, batch_in=32, lr=0.05), progress=False)
    before = macs.evaluate(net, known_test, {"noise": noise(200, seed=9)}, progress=False)
    macs.finetune(net, known, outliers, method="macs", recipe=replace(SHORT, epochs=4), progress=False)
    after = macs.evaluate(net, known_test, {"noise": noise(200, seed=9)}, progress=False)
    assert after.mean("auroc") > max(0.99, before.mean("auroc") - 0.01)
    assert after.accuracy > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_its_seed_decides_every_bit(
    method: str, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    start = small_net()
    results = []
    for seed, name in ((0, "a"), (0, "b"), (1, "c")):
        net = copy.deepcopy(start)
        recipe = replace(SHORT, epochs=1, seed=seed)
        history = macs.finetune(net, known, outliers, method=method, recipe=recipe, run=tmp_path / name, progress=False)
        assert np.isfinite(history[0].loss)
        results.append(weights(net))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])
    assert not same(results[0], weights(start))


def test_without_a_recipe_a_librarys_network_gets_the_defaults_of_its_kind(known: ImageSet, outliers: ImageSet) -> None:
    head = nn.Linear(48, 3)
    wrapped = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), head)
    net = nets.LibraryNet("library/small", 3, wrapped, head, nets.Preparation(16))
    few = known.split(32)[0]
    assert len(macs.finetune(net, few, outliers, progress=False)) == FROM_LIBRARY.epochs == 5
    assert len(macs.finetune(TwoLayers(), few, outliers, progress=False)) == macs.Recipe().epochs == 10


def test_the_callers_random_numbers_are_left_alone(known: ImageSet, outliers: ImageSet) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    macs.finetune(copy.deepcopy(small_net_once()), known, outliers, recipe=replace(SHORT, epochs=1), progress=False)
    assert torch.equal(torch.rand(3), expected)


def small_net_once() -> nn.Module:
    with torch.random.fork_rng():
        return small_net()


def test_the_margin_changes_the_result(known: ImageSet, outliers: ImageSet) -> None:
    ends = []
    for margin in (0.0, 0.3):
        net = small_net()
        macs.finetune(net, known, outliers, recipe=replace(SHORT, margin=margin), progress=False)
        ends.append(weights(net))
    assert not same(*ends)


def test_a_run_folder_holds_recipe_metrics_and_weights(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    net = small_net()
    macs.finetune(net, known, outliers, method="oe", recipe=SHORT, run=tmp_path / "run", progress=False)
    spec = RunFolder(tmp_path / "run").spec
    assert spec.recipe == replace(SHORT, options={"weight": 0.5})
    assert (spec.method, spec.net, spec.classes, spec.preparation.size) == ("oe", "wrn-10-1", known.classes, 16)
    assert (spec.train, spec.outliers) == (known.spec, outliers.spec)
    assert (spec.start.source, spec.start.weights) == ("memory", nets.weights_hash(small_net()))
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    assert 0 < lines[-1]["mcd"] < 1 and lines[-1]["lr"] < lines[0]["lr"] < SHORT.lr
    assert same(load_file(tmp_path / "run/net.safetensors"), weights(net))
    assert same(weights(nets.load(tmp_path / "run", "wrn-10-1", classes=3)), weights(net))


@pytest.mark.parametrize(("method", "keep"), [("divoe", "last"), *slow(("energy", "best"))])
def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    method: str, keep: Literal["last", "best"], tmp_path: Path
) -> None:
    """SIGKILL at random moments; Energy takes its margins from the starting network, DivOE draws random numbers."""
    undisturbed = start_training(tmp_path / "undisturbed", method, keep)
    undisturbed.join(120)
    assert undisturbed.exitcode == 0
    lines = (tmp_path / "undisturbed/metrics.jsonl").read_text().splitlines()
    training_time = sum(json.loads(line)["seconds"] for line in lines)

    random, kills = np.random.default_rng(11), 0
    for _ in range(3):
        child = start_training(tmp_path / "disturbed", method, keep)
        time.sleep(random.uniform(0.1, 0.6) * training_time)
        child.kill()
        child.join(60)
        kills += child.exitcode == -signal.SIGKILL
    assert kills >= 1, "no kill came before the end"
    last = start_training(tmp_path / "disturbed", method, keep)
    last.join(120)
    assert last.exitcode == 0
    ends = [load_file(tmp_path / name / "net.safetensors") for name in ("undisturbed", "disturbed")]
    assert same(*ends)
    kept = [[epoch.kept for epoch in RunFolder(tmp_path / name).epochs()] for name in ("undisturbed", "disturbed")]
    assert kept[0] == kept[1] and sum(filter(None, kept[0])) == 1


def test_resuming_a_finished_run_changes_nothing(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    for _ in range(2):
        net = small_net()
        history = macs.finetune(net, known, outliers, recipe=SHORT, run=tmp_path / "run", resume=True, progress=False)
        assert [epoch.epoch for epoch in history] == [1, 2]
    assert same(weights(net), load_file(tmp_path / "run/net.safetensors"))


def test_a_finished_run_without_its_state_is_not_trained_again(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    macs.finetune(small_net(), known, outliers, recipe=SHORT, run=tmp_path / "run", progress=False)
    (tmp_path / "run/state.pt").unlink()
    with pytest.raises(MacsError, match="is finished"):
        macs.finetune(small_net(), known, outliers, recipe=SHORT, run=tmp_path / "run", resume=True, progress=False)


def test_the_weights_of_a_run_know_their_classes(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    macs.finetune(small_net(), known, outliers, recipe=SHORT, run=tmp_path / "run", progress=False)
    with safe_open(tmp_path / "run/net.safetensors", "pt") as file:
        assert json.loads(file.metadata()["macs"])["class_names"] == ["horizontal", "vertical", "plain"]


def test_a_folder_with_another_run_is_refused_and_left_alone(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    macs.finetune(small_net(), known, outliers, recipe=SHORT, run=run, progress=False)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for recipe, resume, words in (
        (replace(SHORT, lr=0.5), True, "another run.*lr is 0.02 there and 0.5 here"),
        (SHORT, False, "--resume"),
    ):
        with pytest.raises(MacsError, match=words):
            macs.finetune(small_net(), known, outliers, recipe=recipe, run=run, resume=resume, progress=False)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_a_folder_with_other_files_is_refused(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(MacsError, match="not a run"):
        macs.finetune(small_net(), known, outliers, recipe=SHORT, run=tmp_path, progress=False)


def test_a_network_that_has_learned_nothing_is_pointed_out(known: ImageSet) -> None:
    idle = replace(PRETRAINING, epochs=1, lr=0.0, batch_in=32)
    with pytest.warns(MacsWarning, match="guessing among 3 classes gives 33.3%"):
        macs.pretrain(small_net(), known, recipe=idle, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", MacsWarning)
        macs.pretrain(small_net(), known, recipe=replace(idle, epochs=6, lr=0.05), progress=False)


class Leaving(TwoLayers):
    """Well behaved in evaluation mode, and gone with exit code 0 in training mode."""

    def forward(self, pixels: Tensor) -> Tensor:
        if self.training:
            sys.exit(0)
        return super().forward(pixels)


def test_a_network_of_the_users_own_that_fails_in_training_is_one_sentence(known: ImageSet, outliers: ImageSet) -> None:
    with pytest.raises(MacsError, match=r"Leaving cannot take 16 x 16 images: it calls sys.exit\(0\)"):
        macs.finetune(Leaving(), known, outliers, recipe=SHORT, progress=False)
    with pytest.raises(MacsError, match=r"returns a tuple; return the logits alone"):
        macs.finetune(Answer(lambda logits: (logits, logits)), known, outliers, recipe=SHORT, progress=False)
    noisy = Answer(lambda logits: nn.functional.dropout(logits, 0.5))
    with pytest.warns(MacsWarning, match="Answer is still random in training mode"):
        macs.finetune(noisy, known, outliers, recipe=replace(SHORT, dropout=0.0, epochs=1), progress=False)


class Answer(TwoLayers):
    def __init__(self, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, pixels: Tensor) -> Any:
        return self.change(super().forward(pixels))


def test_any_module_that_returns_logits_will_do(
    known: ImageSet, known_test: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    net = TwoLayers()
    macs.finetune(net, known, outliers, recipe=SHORT, run=tmp_path / "run", progress=False)
    table = macs.evaluate(net, known_test, {"noise": outliers}, progress=False)
    assert 0 <= table.accuracy <= 1
    assert RunFolder(tmp_path / "run").spec.net.endswith(":TwoLayers")


def test_one_image_more_than_a_batch_is_no_problem(outliers: ImageSet) -> None:
    few = stripes(33, seed=4)
    history = macs.finetune(small_net(), few, outliers, recipe=replace(SHORT, epochs=1), progress=False)
    assert len(history) == 1
    assert isinstance(few, ImageSet)


def test_a_network_takes_on_the_preparation_of_its_training_images(known: ImageSet, tmp_path: Path) -> None:
    net: Any = small_net()
    preparation = nets.Preparation(12, 14, "bicubic")
    normalisation = net.preparation.normalisation
    recipe = replace(PRETRAINING, epochs=1, batch_in=32, augment="resized-crop")
    macs.pretrain(net, known.prepared(preparation), recipe=recipe, run=tmp_path / "run", progress=False)
    assert net.preparation == preparation.normalised(normalisation) == nets.load(tmp_path / "run").preparation


def test_files_are_prepared_again_for_a_network_that_expects_other_pixels(tmp_path: Path) -> None:
    preparation = nets.Preparation(12, 14, "bicubic")
    folders = [save(images, tmp_path / images.name) for images in (stripes(40, 1, size=20), noise(40, 2, size=30))]
    hashes = set()
    forms: tuple[dict[str, Any], ...] = ({"preparation": preparation}, {}, {"size": 12})
    for i, form in enumerate(forms):
        net: Any = small_net()
        net.preparation = preparation.normalised(net.preparation.normalisation)
        known, outliers = (ImageSet.from_folder(folder, **form) for folder in folders)
        macs.finetune(
            net,
            known,
            outliers,
            recipe=SHORT,
            validation=known.subset([*range(9)]),
            run=tmp_path / f"run{i}",
            progress=False,
        )
        hashes.add(nets.weights_hash(net))
        spec = RunFolder(tmp_path / f"run{i}").spec
        assert net.preparation.geometry == spec.preparation.geometry == preparation
        assert spec.train.load(preparation=preparation).size == 12
    assert len(hashes) == 1
