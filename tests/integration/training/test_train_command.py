"""`macs pretrain`, `finetune` and `sweep` as a user meets them: what is refused, pointed out and recommended."""

import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import macs
from command import refused, run
from macs import nets
from macs.cli.train import finetuning_from, measuring
from macs.training.recipe import FROM_LIBRARY, Recipe
from macs.training.runs import RunFolder
from macs.training.sources import load_training
from macs.training.spec import TrainingOptions
from tiny import STRIPES, noise, save, stripes

SHORT = ["--size", 16, "--net", "wrn-10-1", "--epochs", 1, "--batch-in", 16, "--lr", "0.01"]


def write_stripes(folder: Path, seed: int = 1) -> Path:
    return save(stripes(48, seed), folder)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return write_stripes(tmp_path / "mine")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    np.save(tmp_path / "others.npy", noise(64, seed=3).pixels[:])
    return tmp_path / "others.npy"


def test_a_recipe_file_for_pretraining_leaves_the_rest_to_pretraining(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.toml").write_text("weight_decay = 0.001\n")
    run("pretrain", "--recipe", tmp_path / "r.toml", "--id", mine, *SHORT, "--run", tmp_path / "run", "--json")
    value = json.loads(capsys.readouterr().out)["recipe"]
    assert (value["method"], value["outliers"], value["weight_decay"]) == ("msp", "", 0.001)
    assert RunFolder(tmp_path / "run").spec.method == "msp"


def test_pretraining_by_logitnorm(mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command and the function train the same network, which is not that of cross-entropy."""
    command = ["pretrain", "--id", mine, *SHORT, "--json", "--method"]
    run(*command, "logitnorm", "--options.temperature", "0.1", "--run", tmp_path / "a")
    recorded = RunFolder(tmp_path / "a").spec
    assert (recorded.method, recorded.recipe.options) == ("logitnorm", {"temperature": 0.1})
    run(*command, "msp", "--run", tmp_path / "b")
    weights = [nets.weights_hash(nets.load(tmp_path / name)) for name in ("a", "b")]
    assert weights[0] != weights[1]
    training = load_training(recorded)
    macs.pretrain(training.net, training.train, method="logitnorm", recipe=recorded.recipe, progress=False)
    assert nets.weights_hash(training.net) == weights[0]
    capsys.readouterr()
    assert "oe trains with outliers; use it with `macs finetune`" in refused(capsys, *command, "oe")


def test_a_recipe_for_another_method_does_not_pretrain(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.toml").write_text("method = 'macs'\n")
    assert "is a recipe for macs" in refused(capsys, "pretrain", "--recipe", tmp_path / "r.toml", "--id", mine, *SHORT)


def test_random_weights_are_pointed_out_where_a_classifier_was_expected(
    mine: Path, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("finetune", "--id", mine, "--outliers", others, *SHORT, "--run", tmp_path / "a")
    assert "warning: There is no --checkpoint" in capsys.readouterr().err
    run("pretrain", "--id", mine, *SHORT, "--run", tmp_path / "b")
    run("finetune", "--id", mine, "--outliers", others, *SHORT, "--checkpoint", tmp_path / "b", "--run", tmp_path / "c")
    assert "--checkpoint" not in capsys.readouterr().err


def test_the_normalisation_of_a_public_checkpoint_is_named_and_recorded(
    mine: Path, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    torch.save(nets.build("resnet-18", 3).state_dict(), tmp_path / "best.ckpt")
    start = ["--net", "resnet-18", "--checkpoint", tmp_path / "best.ckpt", "--size", 8, "--precision", "float32"]
    options = ["--id", mine, "--outliers", others, *start, "--epochs", 1, "--batch-in", 8, "--batch-out", 8, "--json"]
    options += ["--epoch-size", 8]
    losses = {}
    for name in ("oe", "half"):
        run("finetune", *options, "--normalisation", name, "--run", tmp_path / name)
        captured = capsys.readouterr()
        value = json.loads(captured.out)
        losses[name] = value["history"][0]["loss"]
        assert value["recipe"]["normalisation"] == name and "normalised" not in captured.err
        net: Any = nets.load(tmp_path / name)
        assert net.preparation.normalisation.name == name
    assert losses["oe"] != losses["half"]

    run("finetune", "--recipe", tmp_path / "half/recipe.toml", "--run", tmp_path / "again", "--json")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["history"][0]["loss"] == losses["half"] and "normalised" not in captured.err

    run("finetune", *options, "--run", tmp_path / "untold")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["history"][0]["loss"] == losses["oe"]
    assert "--normalisation NAME of finetune, sweep, evaluate and calibrate" in captured.err
    assert "did you mean 'imagenet'" in refused(capsys, "finetune", *options, "--normalisation", "imagnet")


def test_outliers_that_are_the_training_images_are_refused(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to(mine)
    for outliers in (mine, f"{mine}/", tmp_path / "link"):
        line = refused(capsys, "finetune", "--id", mine, "--outliers", outliers, *SHORT, "--run", tmp_path / "run")
        assert "belong to no class" in line
        assert "belong to no class" in refused(capsys, "sweep", "--id", mine, "--outliers", outliers, *SHORT)


def test_a_folder_with_any_name_gives_a_recipe_that_loads_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_stripes(tmp_path / "📷 'of' \"us\"")
    run("pretrain", "--id", folder, *SHORT, "--run", tmp_path / "run")
    assert RunFolder(tmp_path / "run").spec.train.source == str(folder)


def test_a_folder_whose_name_no_recipe_can_hold_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_stripes(tmp_path / os.fsdecode(b"photos\xff"))
    assert "UTF-8 cannot encode" in refused(capsys, "pretrain", "--id", folder, *SHORT, "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--lr", "inf"], "lr must be a number, not inf"),
        (["--lr", "nan"], "lr"),
        (["--seed", "-1"], "seed must be at least 0"),
        (["--momentum", "1"], "momentum"),
        (["--batch-in", "99999999999999999999"], "batch_in"),
        (["--epochs", "9" * 5000], "--epochs"),
        (["--id", ""], "One of the arguments is empty"),
        (["--net", ""], "One of the arguments is empty"),
        (["--id", "~nobody-of-this-name"], "~nobody-of-this-name"),
        (["--run", ""], "One of the arguments is empty"),
        (["--run", "/dev/null"], "name another folder"),
        (["--run", "/dev/null/run"], "Cannot write"),
        (["--recipe", "/dev/null"], "is a device, not a recipe"),
        (["--keep", "best"], "best epoch is chosen by validation, and there is none; add --validate"),
        (["--keep", "first"], "--keep"),
    ],
)
def test_a_mistake_gets_one_sentence_before_the_data_is_looked_for(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", "nowhere")
    assert words in refused(capsys, "pretrain", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--validation", "nan"], "--validation must be a share"),
        (["--validation", "inf"], "--validation must be a share"),
        (["--validation=-0.1"], "--validation must be a share"),
        (["--validation", "1.5"], "--validation must be a share"),
        (["--margins", "nan"], "margin must be a number"),
        (["--margins", "0.1", "0.1"], "none of them twice"),
        (["--seeds", "0", "0"], "none of them twice"),
        (["--seeds=-1"], "seed must be at least 0"),
        (["--run", "/dev/null/run"], "Cannot write"),
        (["--options.variant", "unbounded"], "no margin to choose"),
    ],
)
def test_a_mistake_in_a_sweep_gets_one_sentence_before_the_data_is_looked_for(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", "nowhere")
    assert words in refused(capsys, "sweep", *arguments)


def test_the_command_that_is_recommended_fits_the_data(
    mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = measuring(tmp_path / "a run", TrainingOptions(id="digits"), None)
    words = shlex.split(line)
    assert words[:4] == ["macs", "evaluate", str(tmp_path / "a run"), "--ood"]
    assert len(words) > 4 and all(name.startswith("digits-") for name in words[4:])
    assert (
        measuring(Path("r"), TrainingOptions(id="cifar10"), tmp_path)
        == "macs evaluate r --ood FOLDER_OF_UNKNOWN_IMAGES"
    )
    own = "macs evaluate r --ood FOLDER_OF_UNKNOWN_IMAGES"
    assert measuring(Path("r"), TrainingOptions(id=str(mine)), None) == own
    (tmp_path / "divided/test").mkdir(parents=True)
    assert measuring(Path("r"), TrainingOptions(id=str(tmp_path / "divided")), None) == own
    code = TrainingOptions(id="mine:images", net="mine:Net", method="mine:Method")
    assert measuring(Path("r"), code, None) == f"{own} --id mine:images --net mine:Net --score msp"


def test_a_run_on_the_folder_above_stays_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = write_stripes(tmp_path / "photos")
    work = tmp_path / "photos" / STRIPES[0]  # any folder inside will do
    monkeypatch.chdir(work)
    run("pretrain", "--id", "..", *SHORT, "--json")
    assert json.loads(capsys.readouterr().out)["run"] == "runs/photos-wrn-10-1-msp-seed0"
    assert (photos / STRIPES[0] / "runs/photos-wrn-10-1-msp-seed0/net.safetensors").exists()


@pytest.fixture
def divided(tmp_path: Path) -> Path:
    """ID images and outliers, each in a folder with the parts train and val."""
    for split, seed in (("train", 1), ("val", 2)):
        write_stripes(tmp_path / "divided" / split, seed)
        save(noise(40, seed=seed), tmp_path / "unknown" / split)
    return tmp_path


def test_validation_takes_the_val_parts(divided: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["--id", divided / "divided", "--outliers", divided / "unknown", *SHORT]
    sets[sets.index("--epochs") + 1] = 3
    run("finetune", *sets, "--validate", "--keep", "best", "--run", divided / "run", "--json")
    captured = capsys.readouterr()
    value = json.loads(captured.out)
    merits = [(epoch["validation_accuracy"] + epoch["validation_auroc"]) / 2 for epoch in value["history"]]
    assert [epoch["kept"] for epoch in value["history"]] == [merit == max(merits) for merit in merits]
    assert captured.err.count("validation accuracy") == 3 and captured.err.count("AUROC") == 3
    assert (value["recipe"]["validate"], value["recipe"]["keep"]) == (True, "best")
    spec = RunFolder(divided / "run").spec
    assert spec.validation is not None and (spec.validation.split, spec.validation.images) == ("val", 48)
    assert spec.validation_outliers is not None and spec.validation_outliers.images == 40

    run("evaluate", divided / "run", "--id", divided / "divided/val", "--ood", divided / "unknown/val", "--json")
    kept = next(epoch for epoch in value["history"] if epoch["kept"])
    measured = json.loads(capsys.readouterr().out)
    assert measured["id"]["accuracy"] == kept["validation_accuracy"]

    run("finetune", "--recipe", divided / "run/recipe.toml", "--run", divided / "again")
    assert f"with the weights of epoch {kept['epoch']} of 3" in capsys.readouterr().out
    files = [(divided / name / "net.safetensors").read_bytes() for name in ("run", "again")]
    assert files[0] == files[1]


def test_validation_says_what_it_cannot_measure(
    divided: Path, mine: Path, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--outliers", others, *SHORT, "--validate"]
    shutil.copytree(mine, tmp_path / "halves/train")
    line = refused(capsys, "finetune", "--id", tmp_path / "halves", *options, "--run", tmp_path / "a")
    assert f"{tmp_path / 'halves'} has no val part to validate on" in line
    run("finetune", "--id", divided / "divided", *options, "--run", tmp_path / "b")
    assert f"warning: {others} has no val part, so validation measures accuracy alone" in capsys.readouterr().err
    (epoch,) = RunFolder(tmp_path / "b").epochs()
    assert epoch.validation_accuracy is not None and epoch.validation_auroc is None
    run("pretrain", "--id", divided / "divided", *SHORT, "--validate", "--run", tmp_path / "c")
    assert "warning: There is" not in capsys.readouterr().err


def test_the_networks_of_other_libraries_have_defaults_of_their_own(tmp_path: Path) -> None:
    """The command line overrides a file, which overrides them; a run's record is complete and has none."""
    (tmp_path / "flat.toml").write_text("net = 'timm/resnet50'\nepochs = 7\n")
    asked = finetuning_from(tmp_path / "flat.toml", SimpleNamespace(lr=0.5))
    assert asked.recipe == replace(FROM_LIBRARY, epochs=7, lr=0.5)
    assert finetuning_from(None, SimpleNamespace(net="hf/google/vit")).recipe == FROM_LIBRARY
    for ours in ("wrn-40-2", "my.models:Net"):
        assert finetuning_from(None, SimpleNamespace(net=ours)).recipe == Recipe()
        assert finetuning_from(tmp_path / "flat.toml", SimpleNamespace(net=ours)).recipe == Recipe(epochs=7)


def test_a_head_is_tuned_from_the_command_line(
    mine: Path, others: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("timm")
    options = ["--id", mine, "--outliers", others, "--net", "timm/test_resnet", "--size", 32, "--batch-in", 16]
    run("finetune", *options, "--freeze", "backbone", "--epochs", 2, "--balance", "--run", tmp_path / "run", "--json")
    assert len(json.loads(capsys.readouterr().out)["history"]) == 2
    spec = RunFolder(tmp_path / "run").spec
    assert spec.recipe == replace(
        FROM_LIBRARY, batch_in=16, epochs=2, freeze="backbone", balance=True, options=spec.recipe.options
    )
    run("finetune", "--recipe", tmp_path / "run/recipe.toml", "--run", tmp_path / "again")
    assert RunFolder(tmp_path / "again").spec.recipe == spec.recipe
    assert nets.weights_hash(nets.load(tmp_path / "run")) == nets.weights_hash(nets.load(tmp_path / "again"))
    run("finetune", *options, "--freeze", "layer9", "--run", tmp_path / "none", expect=2)
    line = capsys.readouterr().err.splitlines()[-1]
    assert "no layer of timm/test_resnet called 'layer9' (did you mean 'layer" in line
    assert line.endswith("choose one of none, backbone, conv1, bn1, layer1, layer2, layer3, layer4.")
    assert not (tmp_path / "none").exists()
