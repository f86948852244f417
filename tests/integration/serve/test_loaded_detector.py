"""A detector as requests find it: thresholds by request, and loading from either kind of file."""

import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.detector import Detector
from macs.serve.loaded_detector import DetectorFile
from macs.serve.settings import DEFAULT
from running import form, serving, verdicts
from tiny import stripes


@pytest.fixture(scope="module")
def per_class(detector: Detector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classes") / "each.onnx"
    by_class = Detector(detector.net, "energy")
    by_class.calibrate(stripes(300, seed=6), keep=0.6, per_class=groups_of(detector)).export(path)
    return path


def groups_of(detector: Detector) -> bool:
    """Whether every class is predicted often enough for a threshold of its own."""
    return bool((np.bincount(detector.predict(stripes(300, seed=6)).index, minlength=3) >= 10).all())


def test_thresholds_by_class_are_those_of_a_calibration_with_that_share(per_class: Path, detector: Detector) -> None:
    loaded = DetectorFile(per_class, threads=1).load()
    for keep in (0.4, 0.6, 0.75):
        other = Detector(detector.net, "energy").calibrate(
            stripes(300, seed=6), keep=keep, per_class=loaded.runtime.calibration.per_class
        )
        found = loaded.thresholds(keep=keep)
        assert found.shape == other.calibrated.values.shape and found.dtype == np.float32
        np.testing.assert_allclose(found, other.calibrated.values, rtol=1e-5)
    assert (loaded.thresholds(threshold=0.5) == 0.5).all()
    assert loaded.thresholds() is loaded.values
    with pytest.raises(MacsError, match="takes at least 9999 calibration images"):
        loaded.thresholds(keep=0.9999)
    assert len(loaded.describe(DEFAULT)["thresholds"]) == loaded.values.size


def test_a_calibrated_file_is_exported_on_the_way_and_torch_stays_outside(
    detector: Detector, pictures: dict[str, bytes], tmp_path: Path
) -> None:
    path = tmp_path / "mine.safetensors"
    detector.save(path)
    with serving(path, "--threads", 1, blocked=False) as service:
        rows = verdicts(httpx.post(f"{service.url}/v1/predict", files=form(pictures), timeout=60))
        mapped = Path(f"/proc/{service.process.pid}/maps")
        assert not mapped.exists() or "libtorch" not in mapped.read_text()
        assert httpx.get(f"{service.url}/v2/models/mine", timeout=60).json()["name"] == "mine"
    pixels = np.stack([detector.preparation.decode(content, 10**6) for content in pictures.values()])
    expected = detector.predict(pixels)
    assert [row["index"] for row in rows] == expected.index.tolist()
    assert [row["is_ood"] for row in rows] == expected.is_ood.tolist()


def test_files_that_cannot_be_served(exported: Path, tmp_path: Path) -> None:
    shutil.copy(exported, tmp_path / "d.bin")
    (tmp_path / "broken.safetensors").write_bytes(b"hello")
    cases = {
        "There is no detector at": DetectorFile(tmp_path / "missing.onnx"),
        "is a folder": DetectorFile(tmp_path),
        "is not a detector file": DetectorFile(tmp_path / "d.bin"),
        "holds its network and score": DetectorFile(exported, net="mine:Net"),
        "cannot be exported: .*broken.safetensors": DetectorFile(tmp_path / "broken.safetensors"),
    }
    for words, source in cases.items():
        with pytest.raises(MacsError, match=words):
            source.load()
    assert DetectorFile(tmp_path / "missing.onnx").signature() is None
