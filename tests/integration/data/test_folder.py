"""Folders of images, from the command to a run: stray, broken and odd files among them."""

import json
from pathlib import Path

import pytest
from PIL import Image

from command import refused, run
from macs.data import load
from official import images, write_png
from tiny import save, stripes


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """A folder with three classes."""
    return save(stripes(24, seed=4, size=32), tmp_path / "pets")


def test_the_command_takes_outliers_that_lie_anywhere(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "4", "--batch-out", "4", "--json"]
    (image,) = images(1)
    write_png(pets / "stray.png", image)
    known = tmp_path / "known"
    for name in ("a/1.png", "b/1.png"):
        write_png(known / name, image)
    assert "stray.png" in refused(
        capsys, "finetune", "--id", pets, "--outliers", known, *small, "--run", tmp_path / "a"
    )
    run("finetune", "--id", known, "--outliers", pets, *small, "--run", tmp_path / "b")
    assert (tmp_path / "b" / "net.safetensors").exists()


def test_training_stops_at_a_broken_image_or_skips_it(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, *_ = sorted(pets.rglob("*.png"))
    cut.write_bytes(cut.read_bytes()[:60])
    command = ["pretrain", "--id", pets, "--net", "wrn-10-1", "--epochs", "1", "--batch-in", "2", "--json"]
    name = f"{cut.parent.name}/{cut.name}"
    assert name in refused(capsys, *command, "--run", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    run(*command, "--run", tmp_path / "b", "--broken", "skip")
    captured = capsys.readouterr()
    assert captured.err.count(name) == 1 and json.loads(captured.out)["run"] == str(tmp_path / "b")


def test_outliers_may_have_another_size_and_format_than_id_images(
    pets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outliers = tmp_path / "outliers"
    outliers.mkdir()
    for name, mode, size in (("a.jpg", "CMYK", (90, 50)), ("b.tif", "L", (7, 300)), ("c.webp", "RGBA", (33, 32))):
        Image.new("RGB", size, "white").convert(mode).save(outliers / name)
    read = load(outliers, labelled=False, size=24)
    assert read.pixels[:].min() >= 250 and read.pixels.shape == (3, 24, 24, 3)
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "4", "--batch-out", "4", "--size", "24", "--json"]
    run("finetune", "--id", pets, "--outliers", outliers, *small, "--run", tmp_path / "run")
    assert json.loads(capsys.readouterr().out)["history"]


def test_a_validation_class_that_the_training_lacks_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [f"pets/{split}/{name}" for split in ("val", "test") for name in "abc"] + ["pets/train/a", "pets/train/b"]
    for seed, folder in enumerate([*folders, "out"]):
        for i, pixels in enumerate(images(4, seed, size=8)):
            write_png(tmp_path / folder / f"{i}.png", pixels)
    small = ["--net", "wrn-10-1", "--epochs", "1", "--batch-in", "4", "--batch-out", "4", "--size", "8"]
    command = ["--id", tmp_path / "pets", "--outliers", tmp_path / "out", *small]
    run("finetune", *command, "--run", tmp_path / "run")
    capsys.readouterr()
    for again in (["evaluate", tmp_path / "run", "--ood", tmp_path / "out"], ["calibrate", tmp_path / "run"]):
        out = ["--out", tmp_path / "detector.safetensors"] if again[0] == "calibrate" else []
        assert "has the classes a, b, c, but" in refused(capsys, *again, *out)
    run("sweep", *command, "--margins", "0.1", "--run", tmp_path / "sweep", expect=2)  # it also warns of random weights
    assert "has the classes a, b, c, but its training images have a, b" in capsys.readouterr().err
