"""Every command line in README and docs is one that the command line understands, and every Python block runs."""

import contextlib
import importlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import macs
import macs.cli
from command import run
from macs import methods, metrics, scores
from macs.training import PRETRAINING
from snippets import PAGES, ROOT, blocks_of
from stand_ins import STAND_INS, two_classes
from tiny import noise, save

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]

# Python blocks that are only compiled, by a line of theirs, and why they are not run.
NOT_RUN = {
    "class SmallNet(nn.Module):": "a sketch; examples/your_model.py has the whole class, which the next blocks use",
    "from ray_serve import application": "starts a Ray cluster; tests/integration/serve/test_ray_serve.py does",
    'providers=["cuda", "cpu"]': "needs a GPU; tests/integration/detector/test_runtime.py has the CPU alone",
}
OPERATORS = 'operators = library.Library("torchvision", "FRAGMENT")'  # in a block that has a test of its own


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small versions of all that the pages name: photographs, a run, detectors and weights."""
    folder = tmp_path_factory.mktemp("world")
    save(two_classes(48, 1), folder / "photos/known/train")
    save(two_classes(60, 2), folder / "photos/known/val")
    save(two_classes(30, 3), folder / "photos/known/test")
    save(two_classes(30, 3), folder / "photos/val")
    save(noise(40, 4), folder / "photos/other")
    save(noise(40, 5), folder / "photos/unknown")
    save(noise(1, 6), folder)
    (folder / "000.png").rename(folder / "holiday.jpg")
    torch.save(macs.nets.build("resnet-18", classes=100).state_dict(), folder / "best.ckpt")
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        training = "--id photos/known --size 16 --net wrn-10-1 --epochs 1 --batch-in 16 --precision float32"
        outliers = "--outliers photos/other --batch-out 16"
        run("finetune", *training.split(), *outliers.split(), "--run", "runs/mine")
        run("calibrate", "runs/mine", "--out", "detector.safetensors")
        run("export", "detector.safetensors", "detector.onnx")
    return folder


def names_of_the_pages() -> dict[str, Any]:
    """What the pages take for granted: imports, image sets, a network, and tensors of a training loop."""
    small_net = importlib.import_module("your_model").SmallNet  # of examples/, which the test puts on the path

    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 2, (8,), generator=random)
    imports = {"macs": macs, "np": np, "torch": torch, "nn": nn, "F": functional, "Tensor": Tensor, "json": json}
    sets = {
        "train": two_classes(60, 1),
        "test": two_classes(30, 2),
        "validation": two_classes(60, 3),
        "held_out": two_classes(100, 4),
    }
    sets |= {"outliers": noise(40, 5), "unknown": noise(40, 6), "svhn": noise(20, 7)}
    images = {"images": two_classes(5, 8).pixels[:], "image": two_classes(1, 9).pixels[:][0]}
    logits = {f"logits_{part}": torch.randn(8, 2, generator=random) for part in ("in", "out")} | {"labels": labels}
    confidences = {"confidences_of_id_images": np.arange(9.0), "confidences_of_ood_images": np.arange(5.0)}
    others = {"net": macs.nets.build("wrn-10-1", classes=2), "SmallNet": small_net}
    others |= {"replace": replace, "PRETRAINING": replace(PRETRAINING, precision="float32")}
    return {**imports, **sets, **images, **logits, **confidences, **others}


# The tutorial is followed by test_tutorial.py, with its commands.
RUN_PAGES = sorted({block.page for block in PYTHON if block.page.name != "tutorial.md"})


@pytest.mark.docs
@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(world, tmp_path / "world"))
    monkeypatch.syspath_prepend(ROOT / "examples")
    names = names_of_the_pages()
    for stand_in in STAND_INS.get(page.name, ()):
        names |= stand_in(Path.cwd(), monkeypatch)
    for block in (block for block in PYTHON if block.page == page):
        code = compile(block.text, block.place, "exec")
        if not any(line in block.text for line in (*NOT_RUN, OPERATORS)):
            with contextlib.redirect_stdout(io.StringIO()), registries_as_they_were():
                exec(code, names)


@contextlib.contextmanager
def registries_as_they_were() -> Any:
    """Take back what a page registers: other tests count the methods, scores and metrics of the package."""
    entries: list[Any] = [registry.entries() for registry in (methods.method, scores.score, metrics._registry)]
    before = [dict(each) for each in entries]
    yield
    for each, old in zip(entries, before, strict=True):
        each.clear()
        each.update(old)


@pytest.mark.docs
def test_the_operators_that_torchvision_lacks_can_be_defined() -> None:
    """In a process of its own: tests/conftest.py has defined them for this one."""
    (block,) = [block for block in PYTHON if OPERATORS in block.text]
    network = "import macs\nprint(macs.nets.build('torchvision/resnet18', classes=2).classes)"
    command = [sys.executable, "-c", f"{block.text}\n{network}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
