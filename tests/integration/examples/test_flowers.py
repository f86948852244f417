"""The notebook runs from its first cell to its last: on a few pictures made here, and on real photographs."""

import os
import shutil
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

from repository import ROOT

pytestmark = pytest.mark.docs

NOTEBOOK = ROOT / "examples/flowers.ipynb"
TORCHVISION = """
import torch
library = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of one colour each, and noise as everything else."""
    random = np.random.default_rng(0)
    folders = {f"flowers/{split}/{name}": hue for split in ("train", "val", "test") for hue, name in enumerate("abc")}
    for folder, hue in ({"outliers/train": 3, "unknown/scenes": 3, "unknown/textures": 3} | folders).items():
        (tmp_path / "photos" / folder).mkdir(parents=True)
        for number in range(20):
            pixels = random.integers(0, 256, (48, 48, 3), dtype=np.uint8)
            if hue < 3:
                pixels[..., hue] = 255
            Image.fromarray(pixels).save(tmp_path / "photos" / folder / f"{number}.png")
    return tmp_path / "photos"


def outputs_of(folder: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """What the cells print, in a kernel of their own."""
    (folder / "sitecustomize.py").write_text(TORCHVISION, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook: Any = nbformat.reads(NOTEBOOK.read_text(encoding="utf-8"), as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text", "") for output in outputs)


def test_every_cell_runs(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = outputs_of(tmp_path, monkeypatch, PHOTOS=str(photos), NET="timm/test_resnet", WEIGHTS="", EPOCHS="2")
    assert "100.0% of 60 verdicts are equal" in printed
    assert (tmp_path / "flowers.onnx").exists()


@pytest.mark.data
def test_real_photographs_are_told_apart(
    tmp_path: Path, data_root: Path, public_weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every fourth photograph of each folder: the whole set takes a quarter of an hour on two cores."""
    weights = Path(public_weights).with_name("imagenet_tf_efficientnet_lite0.safetensors")
    if not weights.exists():
        pytest.skip(f"there is no {weights}")
    photos = data_root / "photos"
    for folder in [photos / "outliers/train", *photos.glob("unknown/*"), *photos.glob("flowers/*/*")]:
        some = tmp_path / folder.relative_to(data_root)
        some.mkdir(parents=True)
        for photo in sorted(folder.iterdir())[::4]:
            shutil.copy(photo, some)
    printed = outputs_of(tmp_path, monkeypatch, PHOTOS=str(tmp_path / "photos"), WEIGHTS=str(weights.resolve()))
    tested = len(list((tmp_path / "photos/flowers/test").rglob("*.jpg")))
    assert tested > 200
    assert f"100.0% of {tested} verdicts are equal" in printed
