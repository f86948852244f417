"""One way to a trained network: a run folder, parts of which may be given otherwise, or all its parts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import macs
from command import refused
from command import run as command
from macs import nets, training
from macs.core.errors import MacsError
from macs.data import ImageSet, Preparation
from macs.training.recipe import Recipe
from macs.training.runs import load_run
from macs.training.spec import TrainingOptions
from tiny import noise, save, stripes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "energy"
    train, outliers = (macs.data.load(name, "train", size=16) for name in ("digits", "digits-outliers"))
    net = training.starting_net("wrn-10-1", classes=8)
    short = Recipe(epochs=1, epoch_size=64, batch_in=32, batch_out=32)
    macs.finetune(net, train, outliers, method="energy", recipe=short, run=folder, progress=False)
    return folder


def test_a_run_says_all_that_is_needed(run: Path) -> None:
    found = load_run(run)
    assert (found.net, found.id, found.preparation.size, found.score) == ("wrn-10-1", "digits", 16, "energy")
    assert found.classes == tuple("01234567") and found.trained_on == "digits"
    assert nets.weights_hash(found.network()) == nets.weights_hash(nets.load(run))
    assert not found.divided and len(found.images("test")) == len(macs.data.load("digits", "test"))


def test_what_is_given_counts_more_than_what_the_run_says(run: Path, tmp_path: Path) -> None:
    other = load_run(run, net="allconv", checkpoint=tmp_path / "x.pt", id="svhn", size=32)
    assert (other.net, other.checkpoint, other.id, other.preparation.size) == ("allconv", tmp_path / "x.pt", "svhn", 32)
    assert other.trained_on == "digits"


def test_images_are_prepared_as_those_of_the_run_were(tmp_path: Path) -> None:
    bicubic = Preparation(16, 20, "bicubic")
    train = macs.data.load("digits", "train", preparation=bicubic)
    net, short = training.starting_net("wrn-10-1", classes=8), Recipe(epochs=1, epoch_size=64, batch_in=32)
    macs.pretrain(net, train, recipe=short, run=tmp_path / "run", progress=False)
    for size in (None, 16):
        assert load_run(tmp_path / "run", size=size).preparation == net.preparation
    assert isinstance(net, nets.Net) and net.preparation.geometry == bicubic
    assert load_run(tmp_path / "run", size=24).preparation == Preparation(24)


def test_what_the_network_has_seen_is_no_test(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    short = Recipe(epochs=1, batch_in=32, batch_out=32)
    macs.pretrain(training.starting_net("wrn-10-1", 3), known, recipe=short, run=tmp_path / "run", progress=False)
    with pytest.raises(MacsError, match="trained on images in memory; name ID images with --id"):
        load_run(tmp_path / "run")
    assert load_run(tmp_path / "run", id="digits").id == "digits"
    record = (tmp_path / "run/recipe.toml").read_text()
    (tmp_path / "flat/a").mkdir(parents=True)
    (tmp_path / "run/recipe.toml").write_text(record.replace('source = "memory"', f'source = "{tmp_path}/flat"', 1))
    found = load_run(tmp_path / "run")
    with pytest.raises(MacsError, match="trained on all images of .*flat; name other ID images with --id"):
        found.images("test")
    assert not found.divided and len(replace(found, id="digits").images("test"))
    (tmp_path / "run/net.safetensors").unlink()
    with pytest.raises(MacsError, match="not finished"):
        load_run(tmp_path / "run")


def test_a_run_holds_images_of_a_folder_without_splits_out_of_its_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    known = save(stripes(120, seed=1), tmp_path / "known")
    save(noise(30, seed=2), tmp_path / "unknown")
    small = ["--net", "wrn-10-1", "--size", "16", "--epochs", "1", "--batch-in", "16", "--precision", "float32"]
    command("pretrain", "--id", known, *small, "--validate", "--run", tmp_path / "run")
    assert "of its 120 images, 84 train the network, 24 are held out to calibrate on and 12 to evaluate on" in (
        " ".join(capsys.readouterr().err.split())
    )
    found = load_run(tmp_path / "run")
    assert found.divided and found.spec is not None and found.spec.validation is not None
    parts = {split: found.images(split) for split in ("train", "val", "test")}
    assert found.spec.train == parts["train"].spec and found.spec.validation == parts["val"].spec
    names = [name for images in parts.values() for name in images.files]
    assert len(names) == len({*names}) == 120 and [len(images) for images in parts.values()] == [84, 24, 12]
    assert TrainingOptions.of(found.spec).validate

    command("evaluate", tmp_path / "run", "--ood", tmp_path / "unknown", "--score", "knn", "--json")
    measured = json.loads(capsys.readouterr().out)
    assert measured["id"]["images"] == 12 and measured["id"]["name"] == f"{known} (12 of 120)"
    command("calibrate", tmp_path / "run", "--score", "knn", "--out", tmp_path / "d.safetensors", "--json")
    assert json.loads(capsys.readouterr().out)["images"] == 24
    named = ["--detector", tmp_path / "d.safetensors", "--id", known, "--ood", tmp_path / "unknown"]
    command("evaluate", *named, "--json")
    assert json.loads(capsys.readouterr().out)["id"]["images"] == 12

    next((known / "plain").iterdir()).unlink()
    for words in (["evaluate", tmp_path / "run", "--ood", tmp_path / "unknown"], ["evaluate", *named]):
        assert "has changed since the training" in refused(capsys, *words)
