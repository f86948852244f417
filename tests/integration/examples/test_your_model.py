"""The example, run as it stands on images made here: red and green discs are known, noise is not."""

import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import load_file

from command import run
from macs.detector import Detector
from repository import ROOT

pytestmark = pytest.mark.docs

EXAMPLE = ROOT / "examples" / "your_model.py"
GUIDE = ROOT / "docs" / "your-model.md"


def disc(name: str, random: np.random.Generator) -> Image.Image:
    """A red or a green disc, somewhere on a dark ground; the image is not square, so that it has to be cropped."""
    image = Image.new("RGB", (90, 70), tuple(random.integers(0, 60, 3).tolist()))
    (left, top), edge = random.integers(15, 30, 2).tolist(), int(random.integers(20, 35))
    bright, dark = int(random.integers(150, 256)), int(random.integers(0, 60))
    colour = (bright, dark, dark) if name == "ripe" else (dark, bright, dark)
    ImageDraw.Draw(image).ellipse((left, top, left + edge, top + edge), fill=colour)
    return image


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("photos")
    for split, count in (("train", 40), ("val", 15), ("test", 10)):
        for name in ("ripe", "unripe"):
            folder = root / "known" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                disc(name, random).save(folder / f"{i}.png")
    for kind, count in (("other", 40), ("unknown", 20)):
        (root / kind).mkdir(parents=True)
        for i in range(count):
            pixels = random.integers(0, 256, (64, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / kind / f"{i}.png")
    return root


def test_from_folders_to_verdicts(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = runpy.run_path(str(EXAMPLE), run_name="your_model")
    detector = example["main"](photos, tmp_path, pretrain_epochs=4, finetune_epochs=12)
    assert isinstance(detector, Detector)
    assert detector.classes == ("ripe", "unripe") and detector.size == 64
    assert detector.calibrated.images == 30 and detector.calibrated.passing["unknown"] < 0.1
    assert detector.calibrated.accuracy is not None and detector.calibrated.accuracy > 0.9
    verdicts = [line for line in capsys.readouterr().out.splitlines() if line.startswith(str(photos))]
    assert len(verdicts) == 40
    assert sum(": unknown (" in line for line in verdicts if "/unknown/" in line) > 15
    assert sum(": unknown (" not in line for line in verdicts if "/known/" in line) > 14

    # The file goes on to the command line, where the user names the network.
    monkeypatch.chdir(EXAMPLE.parent)
    command = ["predict", photos / "unknown", "--detector", tmp_path / "detector.safetensors"]
    run(*command, "--net", "your_model:SmallNet", "--format", "csv")
    lines = capsys.readouterr().out.splitlines()[1:]
    assert len(lines) == 20
    assert sum(line.split(",")[6] == "true" for line in lines) > 15


def test_the_guides_commands_and_the_script_give_the_same_weights(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detector = runpy.run_path(str(EXAMPLE), run_name="your_model")["main"](photos, tmp_path)
    (tmp_path / "photos").symlink_to(photos)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    lines = GUIDE.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    trainings = [line for line in lines if line.startswith(("    macs pretrain", "    macs finetune"))]
    commands = [shlex.split(line)[1:] for line in trainings if "your_model:SmallNet" in line]
    assert [command[0] for command in commands] == ["pretrain", "finetune"]
    for command in commands:
        run(*command)
    weights = load_file(tmp_path / "runs/tuned/net.safetensors")
    assert all(torch.equal(value, weights[key]) for key, value in detector.net.state_dict().items())
