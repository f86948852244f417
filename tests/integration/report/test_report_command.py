"""`macs report` as a user meets it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import macs
from command import needs_torch, refused
from command import run as command
from macs import nets
from macs.core.errors import MacsError
from macs.scores.knn import KNN
from tiny import noise, save, stripes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on a folder with a test part."""
    save(stripes(30, seed=1), tmp_path / "mine/train")
    save(stripes(30, seed=2), tmp_path / "mine/test")
    np.save(tmp_path / "noise.npy", noise(25, seed=3).pixels[:])
    train = macs.data.load(tmp_path / "mine", "train", size=16)
    net = nets.build("wrn-10-1", classes=3)
    macs.pretrain(net, train, recipe=macs.Recipe(epochs=1, batch_in=16), run=tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_the_report_lies_in_the_run_and_says_what_evaluate_says(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command("report", run, "--ood", tmp_path / "noise.npy")
    assert str(run / "report.html") in capsys.readouterr().out
    assert (run / "report.html").read_text().startswith("<!doctype html>")
    command("report", run, "--ood", tmp_path / "noise.npy", "--out", tmp_path / "other.html", "--json")
    value = json.loads(capsys.readouterr().out)
    command("evaluate", run, "--ood", tmp_path / "noise.npy", "--json")
    evaluated = json.loads(capsys.readouterr().out)
    assert value.pop("report") == str(tmp_path / "other.html") and (tmp_path / "other.html").exists()
    assert value == {key: evaluated[key] for key in value}


def test_a_fitted_score_is_fitted_to_the_training_images(run: Path, tmp_path: Path) -> None:
    command("report", run, "--ood", tmp_path / "noise.npy", "--score", "mahalanobis", "--json")


def test_a_detector_shows_the_nearest_images_of_its_training_while_these_are_on_the_disk(
    run: Path, tmp_path: Path
) -> None:
    file, page = tmp_path / "knn.safetensors", tmp_path / "page.html"
    command("calibrate", run, "--score", "knn", "--keep", "0.9", "--split", "test", "--out", file)
    sets = ("--id", tmp_path / "mine", "--ood", tmp_path / "noise.npy", "--out", page)
    command("report", file, *sets)
    assert 'id="nearest"' in page.read_text()
    save(stripes(5, seed=4), tmp_path / "mine/train")  # other images than those of the record
    command("report", file, *sets)
    assert 'id="nearest"' not in page.read_text()


def test_a_setting_of_the_score_reaches_it(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--ood", tmp_path / "noise.npy", "--score", "knn", "--json"]
    net, load = nets.load(run), macs.data.load
    test, unknown = load(tmp_path / "mine", "test", size=16), {"noise": load(tmp_path / "noise.npy", size=16)}
    train = load(tmp_path / "mine", "train", size=16)
    found = {}
    for k in (1, 25):
        command("report", run, *options, "--score.k", k)
        found[k] = json.loads(capsys.readouterr().out)["mean"]["full"]
        expected = macs.evaluate(net, test, unknown, score=KNN(k=k), train=train, progress=False)
        assert found[k]["auroc"] == expected.mean("auroc")
        assert f"KNN(k={k})" in (run / "report.html").read_text()
    assert found[1] != found[25]
    capsys.readouterr()
    assert "no setting of knn called 'kk'" in refused(capsys, "report", run, *options, "--score.kk", 3)


def test_training_images_are_not_reported_on_as_if_they_were_new(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tmp_path / "mine/test")
    (tmp_path / "mine/train").rename(tmp_path / "flat")
    recipe = (run / "recipe.toml").read_text().replace(f"{tmp_path}/mine", f"{tmp_path}/flat")
    (run / "recipe.toml").write_text(recipe)
    command("report", run, "--ood", tmp_path / "noise.npy", expect=2)
    assert "trained on all images" in capsys.readouterr().err
    save(stripes(30, seed=4), tmp_path / "new")
    command("report", run, "--ood", tmp_path / "noise.npy", "--id", tmp_path / "new")


def test_mistakes_get_one_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere" in refused(capsys, "report", "nowhere", "--ood", "svhn")
    assert "did you mean 'svhn'" in refused(capsys, "report", run, "--ood", "svnh")
    assert "--ood" in refused(capsys, "report", run, "--data", tmp_path)
    (tmp_path / "file").touch()
    elsewhere = ["--out", tmp_path / "file/page.html"]
    assert "Cannot write" in refused(capsys, "report", run, "--ood", tmp_path / "noise.npy", *elsewhere)
    (run / "net.safetensors").unlink()
    assert "not finished" in refused(capsys, "report", run, "--ood", tmp_path / "noise.npy")


def test_no_file_of_the_run_is_overwritten(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    for name in ("recipe.toml", "metrics.jsonl", "state.pt", "net.safetensors"):
        line = refused(capsys, "report", run, "--ood", tmp_path / "noise.npy", "--out", run / name)
        assert "belongs to the run" in line
        with pytest.raises(MacsError, match="belongs to the run"):
            macs.report.write(run / name, nets.load(run), stripes(5, 0), {"noise": noise(5, 1)}, progress=False)
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_what_the_report_is_about_is_not_overwritten(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images, listed = tmp_path / "noise.npy", tmp_path / "noise.txt"
    Image.fromarray(noise(5, 1).pixels[:1][0]).save(tmp_path / "0.png")
    listed.write_text("0.png\n")
    for path in (images, listed):
        assert "while it is read" in refused(capsys, "report", run, "--ood", path, "--out", path)


def test_images_of_other_classes_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(stripes(30, seed=4), tmp_path / "new")
    (tmp_path / "new/plain").rename(tmp_path / "new/spotted")
    line = refused(capsys, "report", run, "--ood", tmp_path / "noise.npy", "--id", tmp_path / "new")
    assert "horizontal, spotted, vertical" in line and "horizontal, plain, vertical" in line
    assert not (run / "report.html").exists()


def test_help_does_not_import_torch() -> None:
    assert not needs_torch("report", "--help")
