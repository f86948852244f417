"""The exported detector in ONNX Runtime: PyTorch's verdicts, in a process that never imports torch."""

import json
import os
import subprocess
import sys
import tomllib
import tracemalloc
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import macs
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.detector import Detector, Runtime
from macs.detector.runtime import UNSEALED, seal, session
from repository import ROOT
from tiny import noise


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of another size, so that the preparation has work to do, and one that is broken."""
    folder = tmp_path_factory.mktemp("photos")
    for i, pixels in enumerate(noise(20, seed=8, size=40).pixels[:]):
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    (folder / "broken.png").write_bytes(b"not a picture")
    return folder


def test_the_rows_are_pytorchs(exported: Path, detector: Detector, photos: Path) -> None:
    theirs, ours = (list(each.predict_files(photos)) for each in (macs.Runtime(exported), detector))
    assert [(row.path, row.index, row.class_, row.is_ood, row.reason) for row in theirs] == [
        (row.path, row.index, row.class_, row.is_ood, row.reason) for row in ours
    ]
    read = [(a, b) for a, b in zip(theirs, ours, strict=True) if not a.reason]
    assert len(read) == 20
    for field in ("confidence", "p_value"):
        pairs = np.array([[getattr(row, field) for row in pair] for pair in read])
        np.testing.assert_allclose(pairs[:, 0], pairs[:, 1], rtol=1e-4)


def test_drafts_go_with_a_detector_into_its_files(dots: Detector, tmp_path: Path) -> None:
    size = dots.size
    pixels = noise(1, seed=3, size=20 * size).pixels[:][0]
    Image.fromarray(pixels).save(tmp_path / "a.jpg")
    drafted = replace(dots, preparation=replace(dots.preparation, draft=True))
    drafted.save(tmp_path / "d.safetensors")
    drafted.export(tmp_path / "d.onnx")
    both: list[Detector | Runtime] = [Detector.load(tmp_path / "d.safetensors", dots.net), Runtime(tmp_path / "d.onnx")]
    expected = dots.predict(drafted.preparation.read(tmp_path / "a.jpg")).confidence
    assert expected != dots.predict(dots.preparation.read(tmp_path / "a.jpg")).confidence
    for each in both:
        assert each.preparation == drafted.preparation
        (row,) = each.predict_files(tmp_path / "a.jpg")
        np.testing.assert_allclose(np.array([row.confidence]), expected, rtol=1e-5)


def test_it_predicts_arrays_and_sets_as_a_detector_does(
    exported: Path, detector: Detector, validation: ImageSet
) -> None:
    runtime = Runtime(exported)
    tensor = torch.from_numpy(noise(3, seed=1).pixels[:]).permute(0, 3, 1, 2) / 255
    loader = DataLoader(TensorDataset(tensor), batch_size=2)
    for images in (validation, noise(3, seed=1, size=24).pixels[:], noise(1, seed=2).pixels[:][0], tensor, loader):
        ours, theirs = detector.predict(images), runtime.predict(images)
        np.testing.assert_array_equal(theirs.index, ours.index)
        np.testing.assert_allclose(theirs.confidence, ours.confidence, rtol=1e-4)
    high = runtime.predict(validation, threshold=2.0)
    assert high.is_ood.all() and high.class_ == [runtime.classes[label] for label in high.index]
    assert runtime.predict(validation, fdr=0.5).is_ood.mean() <= 0.5
    assert (runtime.classes, runtime.preparation) == (detector.classes, detector.preparation)
    assert runtime.calibrated == detector.calibrated


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import macs
for row in macs.Runtime(sys.argv[1], providers="cpu", threads=1).predict_files(sys.argv[2]):
    print(row.path, row.index, row.confidence)
forbidden = ("torch", "scipy", "onnx", "safetensors", "lightning_fabric", "matplotlib")
print([name for name in forbidden if sys.modules.get(name)])
"""


def test_it_needs_onnx_runtime_numpy_and_pillow_only(exported: Path, detector: Detector, photos: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(exported), str(photos)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *rows, forbidden = done.stdout.splitlines()
    assert forbidden == "[]"
    assert [row.split()[1] for row in rows] == [str(row.index) for row in detector.predict_files(photos)]


def test_the_command_needs_no_torch_either(exported: Path, photos: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from macs.__main__ import main; main()"
    arguments = ["predict", str(photos), "--detector", str(exported), "--out", str(tmp_path / "v.jsonl")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr  # one picture is broken
    rows = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    assert len(rows) == 21 and sum(row["p_value"] is not None for row in rows) == 20
    assert "20 ID" in done.stderr or "OOD" in done.stderr


def test_the_packages_to_run_it_are_written_down_once() -> None:
    """runtime.txt asks for what pyproject.toml asks for, and the documentation for what runtime.txt does."""
    root = ROOT
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {*project["dependencies"], *chain(*project["optional-dependencies"].values())}
    wanted = [line for line in (root / "runtime.txt").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    assert wanted and declared.issuperset(wanted)
    names = " ".join(line.partition(">=")[0] for line in wanted)
    assert f"pip install {names}\n" in (root / "docs/export.md").read_text(encoding="utf-8")


def rewritten(path: Path, target: Path, reseal: bool, **changes: str) -> Path:
    """A copy of an exported file with other properties, perhaps with a checksum that fits."""
    model = onnx.load(path)
    properties = {entry.key: entry.value for entry in model.metadata_props} | changes
    onnx.helper.set_model_props(model, properties | ({"sha256": UNSEALED} if reseal else {}))
    content = model.SerializeToString()
    target.write_bytes(content.replace(UNSEALED.encode(), seal(content).encode()) if reseal else content)
    return target


def label_with(path: Path, **changes: object) -> str:
    properties = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    return json.dumps(json.loads(properties["label"]) | changes)


def test_a_file_that_was_changed_is_refused(exported: Path, tmp_path: Path) -> None:
    words = rewritten(exported, tmp_path / "words.onnx", reseal=False, input="anything")
    with pytest.raises(MacsError, match=r"words\.onnx was changed after it was exported"):
        Runtime(words)
    content = bytearray(exported.read_bytes())
    content[len(content) // 2] ^= 1  # a weight
    (tmp_path / "bit.onnx").write_bytes(content)
    with pytest.raises(MacsError, match="was changed after it was exported|is damaged"):
        Runtime(tmp_path / "bit.onnx")
    assert Runtime(rewritten(exported, tmp_path / "same.onnx", reseal=True)).classes == Runtime(exported).classes


def test_a_file_whose_tensors_are_in_another_file_is_refused(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime would read them from the working folder, whatever they are by then."""
    model = onnx.load(exported)
    onnx.save_model(model, tmp_path / "d.onnx", save_as_external_data=True, location="w.bin", size_threshold=1024)
    model = onnx.load(tmp_path / "d.onnx", load_external_data=False)
    onnx.helper.set_model_props(
        model, {entry.key: entry.value for entry in model.metadata_props} | {"sha256": UNSEALED}
    )
    content = model.SerializeToString()
    (tmp_path / "d.onnx").write_bytes(content.replace(UNSEALED.encode(), seal(content).encode()))
    monkeypatch.chdir(tmp_path)
    assert session((tmp_path / "d.onnx").read_bytes()).get_modelmeta().custom_metadata_map["macs"]
    with pytest.raises(MacsError, match=r"d\.onnx keeps tensors in other files, which no checksum covers"):
        Runtime("d.onnx")


@pytest.mark.parametrize("recorded", ["", "0"])
def test_a_checksum_of_another_length_is_refused(exported: Path, tmp_path: Path, recorded: str) -> None:
    """Putting the question marks into each of its places would take 64 times the file's memory."""
    forged = rewritten(exported, tmp_path / "d.onnx", reseal=False, sha256=recorded)
    tracemalloc.start()
    with pytest.raises(MacsError, match="its checksum does not match"):
        Runtime(forged)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * forged.stat().st_size


def test_metadata_that_macs_did_not_write_is_refused(exported: Path, tmp_path: Path) -> None:
    cases = {
        "newer macs": label_with(exported, version=99),
        "not a detector": "[1]",
        "has no metadata of ours": "{",
        "metadata that macs did not write: two classes": label_with(exported, classes=["a", "a"]),
    }
    for complaint, label in cases.items():
        forged = rewritten(exported, tmp_path / "forged.onnx", reseal=True, label=label)
        with pytest.raises(MacsError, match=complaint):
            Runtime(forged)


def test_what_is_not_an_exported_detector_is_refused(exported: Path, tmp_path: Path) -> None:
    model = onnx.load(exported)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(MacsError, match="is an ONNX file, but not a detector; make one with: macs export"):
        Runtime(tmp_path / "other.onnx")
    content = exported.read_bytes()
    for name, part in {"cut": content[: len(content) // 2], "text": b"hello", "empty": b""}.items():
        (tmp_path / f"{name}.onnx").write_bytes(part)
        with pytest.raises(MacsError, match="is damaged or not an ONNX file"):
            Runtime(tmp_path / f"{name}.onnx")
    with pytest.raises(MacsError, match="There is no exported detector"):
        Runtime(tmp_path / "missing.onnx")


def test_a_provider_that_is_not_installed_is_named_with_those_that_are(exported: Path) -> None:
    with pytest.raises(
        MacsError, match=r"no execution provider of this ONNX Runtime called 'cuda'.*cpu.*onnxruntime-gpu"
    ):
        Runtime(exported, providers=["CUDAExecutionProvider", "cpu"])
    assert Runtime(exported, providers="CPUExecutionProvider").session.get_providers() == ["CPUExecutionProvider"]


def test_nothing_is_told_to_the_makers_of_onnx_runtime(exported: Path, tmp_path: Path) -> None:
    """Newer versions keep an identifier and a queue of reports in the user's folder, unless they are told not to."""
    asked = f"import macs; macs.Runtime({str(exported)!r})"
    told = {name: value for name, value in os.environ.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    told |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_DATA_HOME": str(tmp_path / "data")}
    subprocess.run([sys.executable, "-c", asked], env=told, check=True)
    assert [path for path in tmp_path.rglob("*") if "onnxruntime" in path.name] == []
