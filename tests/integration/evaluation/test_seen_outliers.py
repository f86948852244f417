"""`macs evaluate` compares its OOD sets with the outliers that the run records."""

from pathlib import Path

import pytest

from command import run
from tiny import noise, save, stripes

TRAINING = "--net wrn-10-1 --size 16 --epochs 1 --batch-in 32 --batch-out 16 --precision float32"


def test_outliers_of_the_training_are_no_unknown_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for split, seed in (("train", 1), ("val", 2), ("test", 3)):
        save(stripes(96, seed), tmp_path / "known" / split)
    save(noise(20, seed=4), tmp_path / "other")
    save(noise(20, seed=5), tmp_path / "unknown")
    mine, seen, unseen = tmp_path / "run", tmp_path / "other", tmp_path / "unknown"
    run("finetune", "--id", tmp_path / "known", "--outliers", seen, *TRAINING.split(), "--run", mine)
    run("calibrate", mine, "--out", tmp_path / "d.safetensors")
    detector = ("--detector", tmp_path / "d.safetensors", "--id", tmp_path / "known")
    capsys.readouterr()
    for asked in ((mine,), detector):
        run("evaluate", *asked, "--ood", seen, unseen)
        told = " ".join(capsys.readouterr().err.split())
        assert f"All images of the OOD set {seen} are outliers that the network was trained with" in told
        assert told.count("outliers that the network was trained with") == 1
