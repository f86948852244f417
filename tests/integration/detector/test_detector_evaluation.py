"""A detector measured and reported on: the numbers of its network, and its own threshold on the page."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from torch import nn

import macs
from command import needs_torch, refused, run
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector, Runtime
from macs.report.thresholds import choose
from tiny import noise, stripes

WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from macs.__main__ import main; main()"


@pytest.fixture(scope="module")
def folder(detector: Detector, trained: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds of file, with one threshold and with one per class, and images to measure them on."""
    folder = tmp_path_factory.mktemp("measured")
    per_class = Detector(trained, "energy").calibrate(stripes(300, seed=5), keep=0.8, per_class=True)
    for name, each in {"one": detector, "each": per_class}.items():
        each.save(folder / f"{name}.safetensors")
        each.export(folder / f"{name}.onnx")
    images = stripes(60, seed=9, size=24)  # another size, so that the preparation has work to do
    for index, (pixels, label) in enumerate(zip(images.pixels[:], images.labels, strict=True)):
        path = folder / "test" / str(label) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    np.save(folder / "noise.npy", noise(40, seed=3).pixels[:])
    np.save(folder / "dim.npy", stripes(30, seed=6).pixels[:] // 3)
    return folder


def numbers(value: dict[str, Any]) -> list[float]:
    """Every number under `ood` and `mean`, in order."""
    texts = re.findall(r"-?\d+\.\d+(?:e-?\d+)?", json.dumps([value["ood"], value["mean"]]))
    return [float(text) for text in texts]


@pytest.mark.parametrize("name", ["one.onnx", "one.safetensors", "each.onnx", "each.safetensors"])
def test_the_numbers_are_those_of_the_network(
    folder: Path, trained: nn.Module, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sets = [folder / "noise.npy", folder / "dim.npy"]
    run("evaluate", "--detector", folder / name, "--id", folder / "test", "--ood", *sets, "--trials", 3, "--json")
    value = json.loads(capsys.readouterr().out)
    test = macs.data.load(folder / "test", size=16)
    ood = {str(path): macs.data.load(path, size=16) for path in sets}
    score = "msp" if name.startswith("one") else "energy"
    expected = macs.evaluate(trained, test, ood, score=score, trials=3, precision="float32", progress=False).as_dict()
    assert numbers(value) == pytest.approx(numbers(expected), abs=1e-4)
    assert {key: value[key] for key in ("conventions", "protocol")} == {
        key: expected[key] for key in ("conventions", "protocol")
    }
    assert (value["net"], value["detector"]) == ("wrn-10-1", str(folder / name))


def test_evaluate_in_python_is_macs_evaluate(folder: Path, detector: Detector, trained: nn.Module) -> None:
    test, ood = stripes(80, seed=7), {"noise": noise(50, seed=1, size=20)}
    same_size = {"noise": ood["noise"].resized(detector.preparation)}
    expected = macs.evaluate(trained, test, same_size, precision="float32", progress=False)
    for judge in (detector, Runtime(folder / "one.onnx")):
        found = judge.evaluate(test, ood, progress=False)
        assert numbers(found.as_dict()) == pytest.approx(numbers(expected.as_dict()), abs=1e-4)


def test_the_report_has_the_table_and_the_calibrated_threshold(
    folder: Path, detector: Detector, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = ["--id", folder / "test", "--ood", folder / "noise.npy", folder / "dim.npy", "--json"]
    run("report", "--detector", folder / "one.onnx", *options, "--out", page)
    value = json.loads(capsys.readouterr().out)
    run("evaluate", "--detector", folder / "one.onnx", *options)
    evaluated = json.loads(capsys.readouterr().out)
    assert value.pop("report") == str(page) and value == {key: evaluated[key] for key in value}

    html = page.read_text()
    (shown,) = re.findall(r'<output id="value"[^>]*>([^<]+)</output>', html)
    assert float(shown) == pytest.approx(float(detector.thresholds()), rel=2e-6)
    assert f"a threshold of its own, {shown}" in html and ">calibrated<" in html
    test = macs.data.load(folder / "test", size=16)
    kept = float((~detector.predict(test).is_ood).mean())
    assert f"it keeps {macs.report.page.percent(kept)}" in html


def test_a_report_on_thresholds_per_class_lists_them(folder: Path) -> None:
    run("report", "--detector", folder / "each.onnx", "--id", folder / "test", "--ood", folder / "noise.npy")
    html = (folder / "report.html").read_text()
    (table,) = re.findall(r'<table class="numbers" id="thresholds">.*?</table>', html, re.DOTALL)
    record = Runtime(folder / "each.onnx").calibrated
    assert [f"<bdi>{one.group}</bdi>" for one in record.thresholds] == re.findall("<bdi>.*?</bdi>", table)
    assert "one threshold per predicted class" in html and ">calibrated<" not in html


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_an_exported_detector_is_measured_without_torch(folder: Path, tmp_path: Path, command: str) -> None:
    arguments = [command, "--detector", "one.onnx", "--id", "test", "--ood", "noise.npy", "--threads", "1", "--json"]
    arguments += ["--out", str(tmp_path / "page.html")] if command == "report" else []
    process = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(process, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"]["images"] == 60


def test_a_file_that_needs_torch_says_so_where_there_is_none(folder: Path) -> None:
    arguments = ["evaluate", "--detector", "one.safetensors", "--id", "test", "--ood", "noise.npy"]
    process = [sys.executable, "-c", WITHOUT_TORCH, *arguments]
    done = subprocess.run(process, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 2
    assert done.stderr == (
        "error: one.safetensors is run by torch, which is not installed; give its exported file (macs export).\n"
    )


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_mistakes_get_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    given = ["--id", folder / "test", "--ood", folder / "noise.npy"]
    exported = [command, "--detector", folder / "one.onnx"]
    assert "Name ID test images with --id" in refused(capsys, *exported, *given[2:])
    assert "leave the run folder out" in refused(capsys, command, folder, *exported[1:], *given)
    assert "leave --score out" in refused(capsys, *exported, *given, "--score.k", "10")
    assert "leave --net and --score out" in refused(capsys, *exported, *given, "--net", "dots:Dots")
    assert "There is no exported detector" in refused(capsys, command, "--detector", folder / "no.onnx", *given)
    assert "no execution provider" in refused(capsys, *exported, *given, "--provider", "abacus")
    assert "which takes --provider; leave --device out" in refused(capsys, *exported, *given, "--device", "cpu")
    saved = ["--detector", folder / "one.safetensors"]
    assert "no device on this machine called 'abacus'" in refused(capsys, command, *saved, *given, "--device", "abacus")
    assert "--provider is for an exported detector" in refused(capsys, command, *saved, *given, "--provider", "cpu")
    assert "--provider is for an exported" in refused(capsys, command, folder, *given, "--provider", "cpu")
    assert "was calibrated with the score msp" in refused(capsys, command, *saved, *given, "--score", "energy")
    assert "no labels" in refused(capsys, *exported, "--id", folder / "noise.npy", *given[2:])
    assert "--detector" in refused(capsys, "report", "--ood", folder / "noise.npy")


def test_options_of_a_network_are_refused_beside_a_detector(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["evaluate", "--detector", folder / "one.onnx", "--id", folder / "test", "--ood", folder / "noise.npy"]
    for option in (["--checkpoint", "x.pt"], ["--size", "0"], ["--fit-images", "5"], ["--precision", "bf16"]):
        assert f"leave {option[0]} out" in refused(capsys, *given, *option)
    assert "leave --score out" in refused(capsys, *given, "--score", "msp", "energy")


def test_images_of_other_classes_are_refused(folder: Path, detector: Detector) -> None:
    test, ood = stripes(30, seed=4), {"noise": noise(20, seed=3)}
    for judge in (detector, Runtime(folder / "one.onnx")):
        with pytest.raises(MacsError, match="spotted.*but the detector has horizontal, vertical, plain"):
            judge.evaluate(replace(test, classes=("horizontal", "spotted", "plain")), ood)
        with pytest.raises(MacsError, match="no OOD set"):
            judge.evaluate(test, {})
        with pytest.raises(MacsError, match="images has no labels"):
            judge.evaluate(cast(Any, test.pixels[:]), ood)


def test_help_does_not_import_torch() -> None:
    assert not needs_torch("evaluate", "--help")


@pytest.mark.parametrize("own", [0.5, 0.0, -3.25, 1.0, 123.0, float(np.float32(0.1))])
def test_the_detectors_own_threshold_is_a_step_of_the_slider(own: float) -> None:
    random = np.random.default_rng(0)
    near = [own, np.nextafter(np.float32(own), np.float32(-9e9)), np.nextafter(np.float32(own), np.float32(9e9))]
    sets = [np.array([*random.normal(own, 1, 50), *near], np.float32), random.normal(own, 5, 30).astype(np.float32)]
    chosen = choose(sets, own)
    assert chosen.own is not None and chosen.values == sorted(set(chosen.values))
    assert chosen.values[chosen.own] == pytest.approx(own, rel=1e-6, abs=1e-6)
    for confidences, kept in zip(sets, chosen.kept, strict=True):
        assert kept[chosen.own] == int((confidences >= np.float32(own)).sum())
    assert choose(sets).own is None


def test_a_set_may_be_an_imageset_of_any_size(folder: Path) -> None:
    images = ImageSet.from_array(noise(10, seed=1, size=40).pixels[:], name="large")
    result = Runtime(folder / "one.onnx").evaluate(stripes(30, seed=4), {"large": images}, trials=2, progress=False)
    assert [(each.name, each.images) for each in result.sets] == [("large", 10)]
