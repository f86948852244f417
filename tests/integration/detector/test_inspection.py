"""`macs inspect`: what a detector file says of itself, read without torch."""

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from command import needs_torch, refused, run
from macs.core import __version__
from macs.data import ImageSet
from macs.detector import Detector, Runtime
from macs.detector.inspection import inspect
from tiny import STRIPES, stripes


@pytest.fixture(scope="module")
def files(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inspected")
    recorded = replace(detector, recipe={"method": {"name": "macs", "margin": 0.5}, "epochs": 3})
    recorded.save(folder / "d.safetensors")
    recorded.export(folder / "d.onnx")
    return {path.suffix: path for path in folder.iterdir()}


@pytest.mark.parametrize("suffix", [".safetensors", ".onnx"])
def test_the_json_is_what_the_detector_knows(
    files: dict[str, Path], detector: Detector, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("inspect", files[suffix], "--json")
    value = json.loads(capsys.readouterr().out)
    content = files[suffix].read_bytes()
    assert (value["bytes"], value["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert (value["net"], value["score"], value["settings"]) == ("wrn-10-1", "msp", {})
    assert (value["format"], value["macs"], value["precision"]) == ("macs-detector", __version__, "float32")
    assert value["classes"] == list(STRIPES)
    assert value["recipe"] == {"method": {"name": "macs", "margin": 0.5}, "epochs": 3}
    assert value["calibration"] == json.loads(json.dumps(detector.calibrated.as_dict()))
    assert value["preparation"] == json.loads(json.dumps(detector.preparation.as_dict()))
    assert value["resolution"] == pytest.approx(1 / 101)
    if suffix == ".safetensors":
        assert "inputs" not in value and "outputs" not in value
    else:
        assert [(port["name"], port["type"], port["shape"][1:]) for port in value["inputs"]] == [
            ("images", "uint8", [16, 16, 3]),
            ("threshold", "float32", []),
        ]
        assert [(port["name"], port["type"]) for port in value["outputs"]] == [
            ("index", "int64"),
            ("confidence", "float32"),
            ("p_value", "float32"),
            ("is_ood", "bool"),
        ]


def test_the_text_says_it_in_words(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for path in files.values():
        run("inspect", path)
        text = capsys.readouterr().out
        assert "wrn-10-1, float32" in text and "3: horizontal, vertical, plain" in text
        assert "in steps of 0.0099, from 100 calibration images" in text
        assert '  method.name = "macs"\n  method.margin = 0.5\n  epochs = 3' in text
        assert "n = 100, k = 10" in text
    assert ("images uint8 batch x 16 x 16 x 3" in text) == (path.suffix == ".onnx")


def test_settings_classes_and_missing_records_are_shown(trained: nn.Module, known: ImageSet, tmp_path: Path) -> None:
    from macs import scores

    knn = Detector(trained, scores.get("knn", k=7)).fit(known)
    detector = knn.calibrate(stripes(300, seed=5), keep=0.8, per_class=True)
    detector.save(tmp_path / "d.safetensors")
    text, sizes = str(inspect(tmp_path / "d.safetensors")), detector.calibrated.ranked
    assert "knn (k 7, bank 0, reduce random, normalise True)" in text and "No training is recorded." in text
    assert f"from {min(sizes)} to {max(sizes)} calibration images per predicted class" in text
    assert inspect(tmp_path / "d.safetensors").resolution == 1 / (min(sizes) + 1)


@pytest.mark.slow
def test_an_int8_file_says_so(detector: Detector, tmp_path: Path) -> None:
    detector.export_int8(tmp_path / "small.onnx", stripes(120, seed=8), max_drop=100)
    found = inspect(tmp_path / "small.onnx")
    assert found.precision == "int8" and found.metadata == Runtime(tmp_path / "small.onnx").metadata


def test_it_needs_no_torch(files: dict[str, Path]) -> None:
    assert not needs_torch("inspect", str(files[".onnx"]))
    code = "import sys; sys.modules['torch'] = None; from macs.__main__ import main; main()"
    for path in files.values():
        command = [sys.executable, "-c", code, "inspect", str(path), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and json.loads(done.stdout)["net"] == "wrn-10-1", done.stderr


def test_what_is_no_detector_gets_one_sentence(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.pt").write_bytes(b"weights")
    assert "ends in .safetensors (macs calibrate) or .onnx" in refused(capsys, "inspect", tmp_path / "net.pt")
    assert "ends in .safetensors" in refused(capsys, "inspect", tmp_path)
    for suffix, path in files.items():
        content = path.read_bytes()
        damaged = {
            "cut": content[: len(content) // 2],
            "text": b"hello",
            "flipped": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        }
        for name, part in damaged.items():
            (tmp_path / name).with_suffix(suffix).write_bytes(part)
            line = refused(capsys, "inspect", (tmp_path / name).with_suffix(suffix))
            assert "damaged" in line or "was changed after it was" in line
        assert "There is no" in refused(capsys, "inspect", tmp_path / f"missing{suffix}")
    swapped = tmp_path / "swapped.onnx"
    swapped.write_bytes(files[".safetensors"].read_bytes())
    assert "damaged or not an ONNX file" in refused(capsys, "inspect", swapped)


def test_a_newer_file_is_refused(
    detector: Detector, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("macs.detector.saving.VERSION", 99)
        detector.save(tmp_path / "new.safetensors")
        detector.export(tmp_path / "new.onnx")
    for path in tmp_path.glob("new.*"):
        assert "was written by a newer macs" in refused(capsys, "inspect", path)
