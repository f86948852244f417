"""`macs calibrate`, `macs predict` and `macs export` as a user meets them."""

import copy
import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image
from torch import nn

import macs
from cases import slow
from command import refused, run
from dots import Dots
from macs import nets
from macs.data.preparation import Preparation
from macs.data.spec import DataSpec
from macs.detector import Detector
from macs.detector.runtime import session
from macs.training.recipe import Recipe
from macs.training.spec import Start, TrainingSpec
from tiny import STRIPES, noise, save, stripes


def record(images: Path) -> str:
    """What a run records that was trained on these images."""
    return TrainingSpec(
        train=DataSpec(str(images), "train"),
        outliers=None,
        net="wrn-10-1",
        classes=(),
        preparation=Preparation(size=16),
        start=Start("random"),
        method="msp",
        recipe=Recipe(),
    ).to_toml()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, trained: nn.Module) -> Path:
    """Images in folders, a run that was trained on some of them, and a detector of it."""
    root = tmp_path_factory.mktemp("images")
    for split, seed in (("train", 1), ("val", 2)):
        save(stripes(60, seed), root / "mine" / split)
    save(noise(20, seed=4), root / "unknown", ".jpg")
    np.save(root / "flat.npy", stripes(50, seed=7).pixels[:])
    (root / "run").mkdir()
    (root / "run" / "recipe.toml").write_text(record(root / "mine"))
    net: Any = copy.deepcopy(trained)  # with its classes in the order of the folders
    order = [STRIPES.index(name) for name in sorted(STRIPES)]
    net.fc.load_state_dict({name: tensor[order] for name, tensor in net.fc.state_dict().items()})
    nets.save(net, root / "run" / "net.safetensors", class_names=sorted(STRIPES))
    run("calibrate", root / "run", "--out", root / "d.safetensors", "--outliers", root / "unknown")
    return root


def test_a_run_becomes_a_detector(root: Path, capsys: pytest.CaptureFixture[str], trained: nn.Module) -> None:
    out = root / "again.safetensors"
    run("calibrate", root / "run", "--keep", "0.8", "--outliers", root / "unknown", "--out", out, "--json")
    told = json.loads(capsys.readouterr().out)
    val = macs.data.load(root / "mine", "val", size=16)
    by_hand = Detector(trained).calibrate(val, keep=0.8, outliers={"x": macs.data.load(root / "unknown", size=16)})
    assert told["images"] == 60 and told["thresholds"][0]["rank"] == 12
    assert told["thresholds"][0]["value"] == pytest.approx(float(by_hand.thresholds()), rel=1e-5)
    assert told["passing"] == {str(root / "unknown"): by_hand.calibrated.passing["x"]}
    detector = Detector.load(out)
    assert detector.classes == tuple(sorted(STRIPES)) and detector.size == 16
    assert detector.recipe is not None and detector.recipe["method"]["name"] == "msp"
    run("calibrate", root / "run", "--per-class", "--keep", "0.5", "--score", "energy", "--out", out)
    text = capsys.readouterr().out
    assert "within each predicted class" in text and "vertical:" in text and str(out) in text


def test_a_share_of_the_images_is_held_back_to_check(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = root / "checked.safetensors"
    run("calibrate", root / "run", "--keep", "0.8", "--check", "0.25", "--out", out)
    assert "Of 15 other ID images it keeps" in capsys.readouterr().out
    record = Detector.load(out).calibrated
    assert record.images == 45 and record.checks[0].images == 15


def test_a_checkpoint_and_images_without_labels(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, trained: nn.Module
) -> None:
    arguments = ["--net", "wrn-10-1", "--checkpoint", root / "run" / "net.safetensors", "--images", root / "flat.npy"]
    nets.save(trained, tmp_path / "nameless.safetensors")
    arguments[3] = tmp_path / "nameless.safetensors"
    run("calibrate", *arguments, "--size", 16, "--out", tmp_path / "d.safetensors", "--json")
    assert json.loads(capsys.readouterr().out)["accuracy"] is None
    assert Detector.load(tmp_path / "d.safetensors").classes == ("0", "1", "2")
    run("calibrate", *arguments, "--size", 16, "--classes", *STRIPES, "--out", tmp_path / "d.safetensors")
    assert Detector.load(tmp_path / "d.safetensors").classes == STRIPES


def test_each_format_says_the_same(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paths = [root / "unknown", root / "flat.npy"]
    run("predict", *paths, "--detector", root / "d.safetensors")
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 70
    run("predict", *paths, "--detector", root / "d.safetensors", "--json")
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["path"] for each in objects] == [row["path"] for row in rows]
    assert [json.dumps(each["is_ood"]) for each in objects] == [row["is_ood"] for row in rows]
    run("predict", *paths, "--detector", root / "d.safetensors", "--out", tmp_path / "x.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "x.parquet")["index"].to_pylist() == [o["index"] for o in objects]
    run("predict", *paths, "--detector", root / "d.safetensors", "--format", "table", "--out", tmp_path / "x")
    assert len((tmp_path / "x").read_text().splitlines()) == 71
    assert capsys.readouterr().out == ""


def test_a_broken_file_gets_a_row_and_the_exit_code_says_so(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    (tmp_path / "b.png").touch()
    run("predict", tmp_path, tmp_path / "gone.png", "--detector", root / "d.safetensors", "--json", expect=1)
    captured = capsys.readouterr()
    rows = [json.loads(line) for line in captured.out.splitlines()]
    assert [row["is_ood"] is None for row in rows] == [False, True, True]
    assert "b.png" in rows[1]["reason"] and "gone.png" in rows[2]["reason"]
    assert captured.err.strip() == "2 of 3 images could not be read; the verdicts give the reason for each."


def test_a_broken_file_whose_name_is_no_text_takes_nothing_with_it(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    Image.new("RGB", (9, 9)).save(images / "a.png")
    (images / os.fsdecode(b"b\xff.png")).touch()
    for suffix in (".csv", ".jsonl", ".txt", ".parquet"):
        out = tmp_path / f"x{suffix}"
        run("predict", images, "--detector", root / "d.safetensors", "--out", out, expect=1)
        assert b"b\\xff.png" in out.read_bytes() or b"b\\\\xff.png" in out.read_bytes()
        captured = capsys.readouterr()
        assert captured.out == "" and "2 images:" in captured.err and "1 could not be read" in captured.err


def test_the_counts_come_last_and_leave_standard_output_alone(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(
        "predict", root / "unknown", "--detector", root / "d.safetensors", "--out", tmp_path / "x.csv", "--threshold", 2
    )
    captured = capsys.readouterr()
    assert captured.err.strip() == f"{tmp_path / 'x.csv'} holds 20 images: 0 ID, 20 OOD." and captured.out == ""


def test_examples_in_help_stand_on_lines_of_their_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for command in ("calibrate", "predict", "export", "report", "evaluate", "sweep", "reproduce"):
        run(command, "--help")
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        examples = [line for line in lines if line.startswith("macs ")]
        assert examples and all(line.count("macs ") == 1 for line in examples), command


@pytest.mark.parametrize("signum", [signal.SIGKILL, *slow(signal.SIGTERM)])
def test_a_prediction_that_is_killed_leaves_the_old_file(root: Path, tmp_path: Path, signum: signal.Signals) -> None:
    out = tmp_path / "x.csv"
    out.write_text("old")
    np.save(tmp_path / "many.npy", np.zeros((20_000, 16, 16, 3), np.uint8))
    command = [sys.executable, "-m", "macs", "predict", *[str(tmp_path / "many.npy")] * 200]
    with subprocess.Popen(
        [*command, "--detector", root / "d.safetensors", "--out", out], stderr=subprocess.PIPE
    ) as work:
        while not list(tmp_path.glob(".x.csv.*.part")):
            assert work.poll() is None
            time.sleep(0.05)
        work.send_signal(signum)
        assert work.wait() == (143 if signum == signal.SIGTERM else -9)
    assert out.read_text() == "old"
    assert len(list(tmp_path.glob(".*.part"))) == (0 if signum == signal.SIGTERM else 1)
    run("predict", root / "unknown", "--detector", root / "d.safetensors", "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many.npy", "x.csv"]


@pytest.mark.slow
def test_a_reader_of_verdicts_that_goes_away_is_no_error(root: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "macs", "predict", f"{root}/unknown", "--detector", f"{root}/d.safetensors"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_threshold_is_overridden(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for threshold, ood in ((-1, "false"), (2, "true")):
        run("predict", root / "unknown", "--detector", root / "d.safetensors", "--threshold", threshold)
        assert {row["is_ood"] for row in csv.DictReader(capsys.readouterr().out.splitlines())} == {ood}


def test_a_network_of_the_users_is_named_on_the_command_line(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    detector = Detector(Dots()).calibrate(macs.data.load(root / "mine", "val", size=16))
    detector.save(tmp_path / "own.safetensors")
    assert "--net dots:Dots" in refused(capsys, "predict", root / "unknown", "--detector", tmp_path / "own.safetensors")
    run("predict", root / "unknown", "--detector", tmp_path / "own.safetensors", "--net", "dots:Dots")
    assert len(capsys.readouterr().out.splitlines()) == 21


def test_a_detector_is_exported(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run("export", root / "d.safetensors", tmp_path / "d.onnx")
    assert "raw uint8 RGB pixels" in capsys.readouterr().out
    images = stripes(9, seed=9).pixels[:]
    label, *_ = session((tmp_path / "d.onnx").read_bytes()).run(None, {"images": images})
    np.testing.assert_array_equal(label, Detector.load(root / "d.safetensors").predict(images).index)


def test_a_detector_is_exported_in_8_bits(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    detector = Detector(Dots()).calibrate(macs.data.load(root / "mine", "val", size=16))
    detector.save(tmp_path / "own.safetensors")
    known = ["--int8", "--images", root / "mine", "--ood", root / "unknown", "--net", "dots:Dots"]
    run("export", tmp_path / "own.safetensors", tmp_path / "small.onnx", *known, "--max-drop", "100", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["images"] == 30 and told["bytes"] == (tmp_path / "small.onnx").stat().st_size
    assert list(told["auroc"]) == [str(root / "unknown")]


def mistakes(root: Path) -> list[tuple[list[object], str]]:
    detector, out = ["--detector", root / "d.safetensors"], ["--out", root / "x.safetensors"]
    whole = root / "mine" / "train"
    return [
        (["calibrate", *out], "Name a run folder, or give --net, --checkpoint and --images"),
        (["calibrate", root / "nowhere", *out], "no recipe at"),
        (["calibrate", root / "run", "--out", root / "x.pt"], "end in .safetensors"),
        (["calibrate", root / "run", *out, "--split", "train"], "--split"),
        (
            ["calibrate", root / "run", *out, "--check", "50"],
            "must be at least 0 and below 1, not 50",
        ),
        (["calibrate", root / "run", *out, "--images", root / "gone"], "gone"),
        (["calibrate", root / "trained-on-all", *out], f"trained on images of {whole}; give other ID images"),
        (["calibrate", root / "run", "--out", root / "run" / "net.safetensors"], "belongs to the run"),
        (["calibrate", root / "run", *out, "--images", root / "mine" / "train"], "was trained on images of"),
        (["calibrate", root / "run", *out, "--images", root / "copied"], "on which the network was trained"),
        (["predict", *detector], "Name at least one"),
        (["predict", "x.png", *detector, "--fdr", 0], "The false discovery rate must be above 0 and below 1"),
        (["predict", "x.png", *detector, "--fdr", "nan"], "The false discovery rate must be"),
        (["predict", "x.png", *detector, "--fdr", 0.1, "--threshold", 1], "two ways to decide; give one of them"),
        (["predict", "x.png", *detector, "--fdr", 0.0001], "takes at least 9999 calibration images"),
        (["predict", "x.png", *detector, "--provider", "cpu"], "--provider is for an exported detector"),
        (["predict", "x.png", "--detector", root / "d.onnx", "--net", "dots:Dots"], "leave --net and --score out"),
        (["predict", "x.png", "--detector", root / "gone.onnx"], "There is no exported detector"),
        (
            ["predict", "x.png", *detector, "--out", root / "run" / "recipe.toml", "--format", "csv"],
            "belongs to the run",
        ),
        (["predict", "x.png", *detector, "--out", root / "d.safetensors", "--format", "csv"], "while it is read"),
        (["predict", "x.png", *detector, "--out", root, "--format", "csv"], "is a folder"),
        (["report", root / "run", "--out", root / "run" / "recipe.toml"], "belongs to the run"),
        (["sweep", "--run", root / "run", "--id", "digits", "--outliers", "digits-outliers"], "holds a run"),
        (["reproduce", "all", "--out", root / "run"], "holds a run"),
        (["reproduce", "all", "--dry-run", "--out", root / "run" / "recipe.toml" / "x"], "is a file, not a folder"),
        (["reproduce", "all", "--epochs", "0"], "epochs must be at least 1"),
        (["reproduce", "all", "--epochs", "-1"], "epochs must be at least 1"),
        (["reproduce", "all", "--lr", "nan"], "lr must be a number"),
        (["reproduce", "all", "--seeds", "-1"], "seed must be at least 0"),
        (["reproduce", "all", "--ids", "cifar11"], "did you mean 'cifar10'"),
        (["reproduce", "all", "--nets", "wrn"], "no network in the paper called 'wrn'"),
        (["demo", "--out", root / "run"], "holds a run"),
        *(
            (["calibrate", root / "run", *out, "--keep", x], "confidence level, must be above 0")
            for x in ("nan", "1.5", "0", "inf")
        ),
        *((["calibrate", root / "run", *out, "--check", x], "--check, the share") for x in ("nan", "-1", "1", "inf")),
        *(
            (["calibrate", root / "run", *out, "--size", x], "size must be at least 1")
            for x in ("0", "-1", "1000000000")
        ),
        *((["export", root / "d.safetensors", "x.onnx", "--max-drop", x], "may cost") for x in ("nan", "-1", "inf")),
        (["predict", "x.png", "--detector", root / "gone.safetensors"], "no detector at"),
        (["predict", "x.png", "--detector", root / "run" / "net.safetensors"], "it says that it is a macs-net"),
        (["predict", "x.png", *detector, "--out", "x.xls"], "has no suffix of a known format"),
        (["predict", "x.png", *detector, "--format", "parquet"], "--out"),
        (["export", root / "d.safetensors", "x.pb"], "end in .onnx"),
        (["export", root / "d.safetensors", "x.onnx", "--int8"], "--images"),
        (["export", root / "d.safetensors", "x.onnx", "--ood", "svhn"], "--images"),
        (["export", root / "gone.safetensors", "x.onnx"], "no detector at"),
    ]


def test_a_mistake_gets_one_sentence_and_most_need_no_torch(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "trained-on-all").mkdir()
    (root / "trained-on-all" / "recipe.toml").write_text(record(root / "mine" / "train"))
    nets.save(nets.build("wrn-10-1", 3), root / "trained-on-all" / "net.safetensors")
    shutil.copytree(root / "mine" / "train", root / "copied")
    before = {path: path.read_bytes() for path in (root / "run").iterdir()}
    for arguments, words in mistakes(root):
        assert words in refused(capsys, *arguments), arguments
    assert {path: path.read_bytes() for path in (root / "run").iterdir()} == before
    code = f"""
import sys
from macs.__main__ import main
for arguments in {[[str(each) for each in arguments] for arguments, _ in mistakes(root)]!r}:
    sys.argv = ["macs", *arguments]
    try:
        main()
    except SystemExit as end:
        assert end.code == 2
    assert "torch" not in sys.modules, arguments
for command in ("calibrate", "predict", "export"):
    sys.argv = ["macs", command, "--help"]
    try:
        main()
    except SystemExit:
        pass
    assert "torch" not in sys.modules, command
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr


def test_images_of_other_classes_than_the_runs_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(root / "mine" / "val", tmp_path / "renamed")
    (tmp_path / "renamed" / "plain").rename(tmp_path / "renamed" / "zebra")
    lists = "has the classes horizontal, vertical, zebra, but .*trained for horizontal, plain, vertical"
    out = ["--out", tmp_path / "x.safetensors"]
    assert re.search(lists, refused(capsys, "calibrate", root / "run", "--images", tmp_path / "renamed", *out))
    assert re.search(
        lists, refused(capsys, "evaluate", root / "run", "--id", tmp_path / "renamed", "--ood", root / "unknown")
    )
    assert re.search(
        lists, refused(capsys, "report", root / "run", "--id", tmp_path / "renamed", "--ood", root / "unknown")
    )
    words = refused(capsys, "calibrate", root / "run", "--images", root / "flat.npy", "--classes", "a", "b", "c", *out)
    assert "--classes are a, b, c, but" in words and "was trained for horizontal, plain, vertical" in words
    assert not (tmp_path / "x.safetensors").exists()

    run("calibrate", root / "run", "--images", root / "flat.npy", *out)
    assert Detector.load(tmp_path / "x.safetensors").classes == tuple(sorted(STRIPES))
    capsys.readouterr()
    known = ["--int8", "--images", tmp_path / "renamed"]
    assert re.search(
        "has the classes horizontal, vertical, zebra, but the detector has horizontal, plain, vertical",
        refused(capsys, "export", root / "d.safetensors", tmp_path / "x.onnx", *known),
    )


def test_a_training_records_its_class_names(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--id", root / "mine", "--size", 16, "--net", "wrn-10-1", "--epochs", 1, "--batch-in", 16]
    run("pretrain", *options, "--run", tmp_path / "run")
    assert nets.class_names(tmp_path / "run") == tuple(sorted(STRIPES))


def test_some_training_images_among_the_others_are_pointed_out(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(root / "mine" / "val", tmp_path / "val")
    leaked = next((root / "mine" / "train" / "plain").iterdir())
    shutil.copy(leaked, tmp_path / "val" / "plain" / leaked.name)
    run("calibrate", root / "run", "--images", tmp_path / "val", "--out", tmp_path / "x.safetensors")
    warning = capsys.readouterr().err.strip()
    wanted = f"warning: 1 of the 6[01] images of .*, such as plain/{leaked.name}, are also in [^\n]*"
    assert re.fullmatch(wanted, warning)


@pytest.mark.slow
def test_a_network_that_guesses_is_pointed_out(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    net: Any = nets.build("wrn-10-1", 3)
    torch.nn.init.zeros_(net.fc.weight)  # it always answers with the first class
    nets.save(net, tmp_path / "net.safetensors")
    arguments = ["--net", "wrn-10-1", "--checkpoint", tmp_path / "net.safetensors", "--images", root / "mine"]
    run("calibrate", *arguments, "--size", 16, "--out", tmp_path / "d.safetensors")
    assert "where guessing among 3 classes gives 33.3%" in capsys.readouterr().err
    run("export", tmp_path / "d.safetensors", tmp_path / "d.onnx")
    assert "where guessing among 3 classes gives 33.3%" in capsys.readouterr().err
    run(
        "export", tmp_path / "d.safetensors", tmp_path / "d.onnx", "--int8", "--images", root / "mine", "--max-drop", 99
    )
    assert "where guessing among 3 classes gives 33.3%" in capsys.readouterr().err
    run("calibrate", root / "run", "--out", tmp_path / "good.safetensors")
    assert "warning" not in capsys.readouterr().err


def test_a_network_for_other_classes_is_named_with_both_numbers(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nets.save(nets.build("wrn-10-1", 1000), tmp_path / "net.safetensors")
    arguments = ["--net", "wrn-10-1", "--checkpoint", tmp_path / "net.safetensors", "--images", root / "mine"]
    words = refused(capsys, "calibrate", *arguments, "--size", 16, "--out", tmp_path / "d.safetensors")
    assert "does not fit wrn-10-1 with 3 classes: it has 1000 classes" in words


def test_the_checkpoint_itself_is_not_overwritten(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: nn.Module
) -> None:
    nets.save(trained, tmp_path / "net.safetensors")
    arguments = ["--net", "wrn-10-1", "--checkpoint", tmp_path / "net.safetensors", "--images", root / "mine"]
    words = refused(capsys, "calibrate", *arguments, "--size", 16, "--out", tmp_path / "net.safetensors")
    assert "while it is read" in words and nets.load(tmp_path / "net.safetensors")


def test_the_images_and_the_detector_that_are_read_are_not_overwritten(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(root / "unknown", tmp_path / "unknown")
    np.save(tmp_path / "unknown" / "more.npy", stripes(3, seed=7).pixels[:])
    predict = ("predict", "--detector", root / "d.safetensors", "--format", "csv", "--out")
    for name in ("000.jpg", "more.npy"):
        for paths in (tmp_path / "unknown", tmp_path / "unknown" / "*"):
            assert "never overwritten" in refused(capsys, *predict, tmp_path / "unknown" / name, paths)
    misnamed = shutil.copy(root / "d.safetensors", tmp_path / "d.onnx")
    assert "while it is read" in refused(capsys, "export", misnamed, misnamed)
    assert Detector.load(misnamed)


def test_a_fitted_score_is_fitted_to_the_images_of_the_training(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = root / "knn.safetensors"
    run("calibrate", root / "run", "--score", "knn", "--score.k", 5, "--fit-images", 40, "--out", out)
    capsys.readouterr()
    loaded = Detector.load(out)
    assert repr(loaded.score) == "KNN(k=5)"
    train = macs.data.load(root / "mine", "train", size=16)
    expected = Detector(loaded.net, macs.scores.get("knn", k=5)).fit(train, images=40).score.vectors
    assert torch.equal(loaded.score.vectors, expected)
    run("predict", root / "unknown", "--detector", out, "--json")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 20 and all(-2 <= row["confidence"] <= 0 for row in rows)
    run("calibrate", root / "run", "--score", "ash", "--out", root / "ash.safetensors")
    capsys.readouterr()


OWN_SCORE = """
from macs.scores import Score


class Second(Score):
    def confidence(self, outputs):
        return -outputs.logits.topk(2).values[:, 1]
"""


def test_a_score_of_the_users_own_is_named_on_the_command_line(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_second.py").write_text(OWN_SCORE)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "own.safetensors"
    run("calibrate", root / "run", "--score", "own_second:Second", "--out", out)
    capsys.readouterr()
    question = ["predict", root / "unknown", "--detector", out, "--json"]
    assert "--score own_second:Second" in refused(capsys, *question)
    run(*question, "--score", "own_second:Second")
    assert len(capsys.readouterr().out.splitlines()) == 20


def test_mistakes_that_only_the_network_can_find(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", root / "x.safetensors"]
    assert "at least 99" in refused(capsys, "calibrate", root / "run", "--keep", "0.99", *out)
    assert "above 0 and below 1" in refused(capsys, "calibrate", root / "run", "--keep", "95", *out)
    assert "needs the gradient" in refused(capsys, "calibrate", root / "run", "--score", "odin", *out)
    assert "leave --fit-on out" in refused(capsys, "calibrate", root / "run", "--fit-on", root / "mine", *out)
    fitted = ["calibrate", root / "run", "--score", "knn", *out]
    itself = ["--score.k", "5", "--fit-on", root / "mine" / "val"]
    assert "holds the images to calibrate on" in refused(capsys, *fitted, *itself)
    assert "k must be at least 1" in refused(capsys, *fitted, "--score.k", "0")
    assert "no setting of knn called 'q'" in refused(capsys, *fitted, "--score.q", "1")
    bare = ["--net", "wrn-10-1", "--checkpoint", root / "run" / "net.safetensors", "--size", 16]
    bare += ["--images", root / "mine" / "val", "--score", "knn", *out]
    assert "name them with --fit-on" in refused(capsys, "calibrate", *bare)
    assert "must be a number" in refused(
        capsys, "predict", root / "unknown", "--detector", root / "d.safetensors", "--threshold", "nan"
    )
    assert "must be a number" in refused(
        capsys, "predict", root / "unknown", "--detector", root / "d.safetensors", "--threshold", "1e300"
    )
    assert not (root / "x.safetensors").exists()


def test_verdicts_by_a_false_discovery_rate(root: Path, tmp_path: Path) -> None:
    for name in ("plain", "fdr"):
        more = ["--fdr", 0.3] if name == "fdr" else []
        out = tmp_path / f"{name}.jsonl"
        run(
            "predict",
            root / "unknown",
            root / "mine" / "val",
            "--detector",
            root / "d.safetensors",
            "--out",
            out,
            *more,
        )
    plain, controlled = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for name in ("plain", "fdr")
    )
    assert [row | {"is_ood": None, "threshold": None} for row in plain] == [
        row | {"is_ood": None, "threshold": None} for row in controlled
    ]
    ascending = sorted(row["p_value"] for row in plain)
    reached = [p for i, p in enumerate(ascending, 1) if p <= 0.3 * i / len(ascending) + 1e-9]
    assert [row["is_ood"] for row in controlled] == [row["p_value"] <= max(reached, default=-1) for row in plain]
