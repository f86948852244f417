"""Commands that use outputs of earlier ones say the same as those that compute everything."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command import run
from macs import nets
from macs.core.cache import FOLDER
from tiny import STRIPES, noise, save, stripes


@pytest.fixture
def files(trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network, images, and an empty cache."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    nets.save(trained, tmp_path / "net.safetensors", class_names=sorted(STRIPES))  # as folders are
    save(stripes(60, seed=1), tmp_path / "mine" / "train")
    save(stripes(30, seed=2), tmp_path / "mine" / "test")
    save(stripes(80, seed=3), tmp_path / "mine" / "val")
    np.save(tmp_path / "unknown.npy", noise(25, seed=4).pixels[:])
    return tmp_path


def test_numbers_and_detectors_are_the_same_with_and_without_the_cache(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    network = ["--net", "wrn-10-1", "--checkpoint", files / "net.safetensors", "--size", 16, "--json"]
    passes: list[int] = []
    features_of = nets.features_of

    def counting(net: Any, pixels: Any) -> Any:
        passes.append(len(pixels))
        return features_of(net, pixels)

    monkeypatch.setattr(nets, "features_of", counting)

    def evaluated(*more: object) -> Any:
        run("evaluate", *network, "--id", files / "mine", "--ood", files / "unknown.npy", "--score", "all", *more)
        return json.loads(capsys.readouterr().out)

    def calibrated(*more: object) -> tuple[Any, bytes]:
        detector = files / "d.safetensors"
        given = ["--images", files / "mine", "--fit-on", files / "mine", "--score", "energy+knn", "--out", detector]
        run("calibrate", *network, *given, *more)
        return json.loads(capsys.readouterr().out), detector.read_bytes()

    for command in (evaluated, calibrated):
        passes.clear()
        expected = command("--no-cache")
        without = len(passes)
        assert not (files / "cache").exists() or command is calibrated
        assert command() == expected
        passes.clear()
        assert command() == expected
        assert len(passes) == 0 < without
