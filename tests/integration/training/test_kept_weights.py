"""What is kept of a training: the last epoch or the best one, and no kill changes which."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import macs
from cases import slow
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.training.runs import Epoch, RunFolder
from short_training import SHORT, same, small_net, weights
from tiny import noise

BEST = replace(SHORT, epochs=4, keep="best")


@pytest.fixture
def merits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation that always finds the second epoch best, as real images of this size seldom do."""

    def measured(_: object, epoch: Epoch, *__: object) -> Epoch:
        return replace(epoch, validation_accuracy=[0.5, 0.9, 0.7, 0.9][epoch.epoch - 1])

    monkeypatch.setattr("macs.training.checks.Validation.measured", measured)


def after_each_epoch(known: ImageSet, outliers: ImageSet) -> list[dict[str, Tensor]]:
    """The weights after each of four epochs."""
    found: list[dict[str, Tensor]] = []
    macs.finetune(
        small_net(),
        known,
        outliers,
        recipe=replace(BEST, keep="last"),
        progress=False,
        on_epoch=lambda epoch, net: found.append(weights(net)),
    )
    return found


@pytest.mark.usefixtures("merits")
def test_the_weights_of_the_best_epoch_are_kept_in_memory_and_on_disk(
    known: ImageSet, outliers: ImageSet, known_test: ImageSet, tmp_path: Path
) -> None:
    expected = after_each_epoch(known, outliers)
    for run in (None, tmp_path / "run"):
        net = small_net()
        history = macs.finetune(net, known, outliers, recipe=BEST, validation=known_test, run=run, progress=False)
        assert same(weights(net), expected[1]) and not net.training
        assert [epoch.kept for epoch in history] == [False, True, False, False]
    assert same(load_file(tmp_path / "run/net.safetensors"), expected[1])
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [line["kept"] for line in lines] == [False, True, False, False]
    assert RunFolder(tmp_path / "run").spec.recipe.keep == "best"

    again = small_net()  # a finished run, asked for once more
    macs.finetune(
        again, known, outliers, recipe=BEST, validation=known_test, run=tmp_path / "run", resume=True, progress=False
    )
    assert same(weights(again), expected[1])


@pytest.mark.usefixtures("merits")
@pytest.mark.parametrize("finished", [2, *slow(1, 3)])
def test_a_run_that_was_stopped_keeps_the_same_epoch(
    finished: int, known: ImageSet, outliers: ImageSet, known_test: ImageSet, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill(epoch: Epoch, net: nn.Module) -> None:
        if epoch.epoch == finished:
            raise Killed

    with pytest.raises(Killed):
        macs.finetune(
            small_net(),
            known,
            outliers,
            recipe=BEST,
            validation=known_test,
            run=tmp_path,
            progress=False,
            on_epoch=kill,
        )
    assert not (tmp_path / "net.safetensors").exists()
    history = macs.finetune(
        small_net(), known, outliers, recipe=BEST, validation=known_test, run=tmp_path, resume=True, progress=False
    )
    assert [epoch.kept for epoch in history] == [False, True, False, False]
    expected = after_each_epoch(known, outliers)[1]
    assert same(load_file(tmp_path / "net.safetensors"), expected)


def test_the_last_epoch_is_kept_unless_asked_otherwise(known: ImageSet, outliers: ImageSet) -> None:
    history = macs.finetune(small_net(), known, outliers, recipe=SHORT, progress=False)
    assert [epoch.kept for epoch in history] == [False, True]


def quarter_of_the_way(start: dict[str, Tensor], end: dict[str, Tensor]) -> dict[str, Tensor]:
    """Three quarters of one network and a quarter of another, parameter by parameter."""
    return {
        name: torch.from_numpy(0.75 * start[name].numpy() + 0.25 * end[name].numpy()).to(end[name].dtype)
        if end[name].is_floating_point()
        else end[name]
        for name in end
    }


@pytest.mark.usefixtures("merits")
def test_a_share_of_the_starting_weights_is_kept(
    known: ImageSet, outliers: ImageSet, known_test: ImageSet, tmp_path: Path
) -> None:
    trained = after_each_epoch(known, outliers)
    for plain, end in ((replace(BEST, keep="last"), trained[3]), (BEST, trained[1])):
        recipe, folder = replace(plain, start_share=0.75), tmp_path / plain.keep
        expected = quarter_of_the_way(weights(small_net()), end)
        tune = partial(macs.finetune, recipe=recipe, validation=known_test, progress=False)
        for run, resume in ((None, False), (folder, False), (folder, True)):  # at last a finished run
            net = small_net()
            tune(net, known, outliers, run=run, resume=resume)
            assert close(weights(net), expected)
        assert close(load_file(folder / "net.safetensors"), expected)


def test_a_run_that_was_stopped_keeps_the_share_of_its_own_start(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    recipe, whole = replace(SHORT, start_share=0.5), small_net()
    macs.finetune(whole, known, outliers, recipe=recipe, progress=False)

    def kill(epoch: Epoch, net: nn.Module) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        macs.finetune(small_net(), known, outliers, recipe=recipe, run=tmp_path, progress=False, on_epoch=kill)
    other = small_net()
    nn.init.zeros_(next(other.parameters()))  # the weights come from the run, not from the network that is given
    macs.finetune(other, known, outliers, recipe=recipe, run=tmp_path, resume=True, progress=False)
    assert same(weights(other), weights(whole))


def close(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.allclose(one[name], two[name], atol=1e-6) for name in one)


def test_the_best_epoch_needs_validation(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="The best epoch is chosen by validation, and there is none; add --validate"):
        macs.finetune(small_net(), known, outliers, recipe=BEST, run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_other_validation_images_are_another_run(
    known: ImageSet, known_test: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    train = partial(macs.finetune, recipe=SHORT, run=tmp_path / "run", resume=True, progress=False)
    train(small_net(), known, outliers, validation=known_test)
    with pytest.raises(MacsError, match="another run .*other validation images"):
        train(small_net(), known, outliers)
    with pytest.raises(MacsError, match="another run .*other validation outliers"):
        train(small_net(), known, outliers, validation=known_test, validation_outliers=noise(9, seed=1))


def test_a_state_and_metrics_from_before_validation_are_read(
    known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    """Their epochs have no field for validation; their recipe has no `keep`."""
    net = small_net()
    macs.finetune(net, known, outliers, recipe=SHORT, run=tmp_path, progress=False)
    new = {"validation_accuracy", "validation_auroc", "kept"}
    state = torch.load(tmp_path / "state.pt")
    state["history"] = [{name: row[name] for name in row if name not in new} for row in state["history"]]
    torch.save(state, tmp_path / "state.pt")
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in state["history"]))
    recipe = (tmp_path / "recipe.toml").read_text().splitlines()
    (tmp_path / "recipe.toml").write_text("\n".join(line for line in recipe if not line.startswith("keep")))
    assert [epoch.kept for epoch in RunFolder(tmp_path).epochs()] == [None, None]
    resumed = small_net()
    macs.finetune(resumed, known, outliers, recipe=SHORT, run=tmp_path, resume=True, progress=False)
    assert same(weights(resumed), weights(net))
