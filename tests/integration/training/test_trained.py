"""One way to a trained network: a run folder, parts of which may be given otherwise, or all its parts."""

from pathlib import Path

import pytest

import macs
from macs import nets, training
from macs.core.errors import MacsError
from macs.data import ImageSet, Preparation
from macs.training.recipe import Recipe
from macs.training.trained import open_trained, refuse_trained_on_all


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "energy"
    train, outliers = (macs.data.load(name, "train", size=16) for name in ("digits", "digits-outliers"))
    net = training.starting_net("wrn-10-1", classes=8)
    short = Recipe(epochs=1, epoch_size=64, batch_in=32, batch_out=32)
    macs.finetune(net, train, outliers, method="energy", recipe=short, run=folder, progress=False)
    return folder


def test_a_run_says_all_that_is_needed(run: Path) -> None:
    found = open_trained(run)
    assert (found.net, found.id, found.preparation.size, found.score) == ("wrn-10-1", "digits", 16, "energy")
    assert found.classes == tuple("01234567") and found.trained_on == "digits"
    assert nets.weights_hash(found.network()) == nets.weights_hash(nets.load(run))
    refuse_trained_on_all(found, None)


def test_what_is_given_counts_more_than_what_the_run_says(run: Path, tmp_path: Path) -> None:
    other = open_trained(run, net="allconv", checkpoint=tmp_path / "x.pt", id="svhn", size=32)
    assert (other.net, other.checkpoint, other.id, other.preparation.size) == ("allconv", tmp_path / "x.pt", "svhn", 32)
    assert other.trained_on == "digits"


def test_images_are_prepared_as_those_of_the_run_were(tmp_path: Path) -> None:
    bicubic = Preparation(16, 20, "bicubic")
    train = macs.data.load("digits", "train", preparation=bicubic)
    net, short = training.starting_net("wrn-10-1", classes=8), Recipe(epochs=1, epoch_size=64, batch_in=32)
    macs.pretrain(net, train, recipe=short, run=tmp_path / "run", progress=False)
    for size in (None, 16):
        assert open_trained(tmp_path / "run", size=size).preparation == net.preparation
    assert isinstance(net, nets.Net) and net.preparation.geometry == bicubic
    assert open_trained(tmp_path / "run", size=24).preparation == Preparation(24)


def test_what_the_network_has_seen_is_no_test(known: ImageSet, outliers: ImageSet, tmp_path: Path) -> None:
    short = Recipe(epochs=1, batch_in=32, batch_out=32)
    macs.pretrain(training.starting_net("wrn-10-1", 3), known, recipe=short, run=tmp_path / "run", progress=False)
    with pytest.raises(MacsError, match="trained on images in memory; name ID images with --id"):
        open_trained(tmp_path / "run")
    assert open_trained(tmp_path / "run", id="digits").id == "digits"
    record = (tmp_path / "run/recipe.toml").read_text()
    (tmp_path / "flat/a").mkdir(parents=True)
    (tmp_path / "run/recipe.toml").write_text(record.replace('source = "memory"', f'source = "{tmp_path}/flat"', 1))
    found = open_trained(tmp_path / "run")
    with pytest.raises(MacsError, match="trained on all images of .*flat; name other ID images with --id"):
        refuse_trained_on_all(found, None)
    refuse_trained_on_all(found, "digits")
    (tmp_path / "run/net.safetensors").unlink()
    with pytest.raises(MacsError, match="not finished"):
        open_trained(tmp_path / "run")
