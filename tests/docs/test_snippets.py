"""Every command line in README and docs is one that the command line understands, and every Python block runs."""

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cyclopts import App, CycloptsError
from snippets import PAGES, ROOT, Block, Command, blocks_of, commands_in
from stand_ins import STAND_INS, two_classes
from torch import Tensor, nn
from torch.nn import functional

import macs
import macs.cli
from command import run
from macs import methods, metrics, scores
from macs.__main__ import QUIET, TRACEBACK, VERBOSE
from macs.cli._app import app
from macs.training import PRETRAINING
from tiny import noise, save

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
COMMANDS = [command for block in BLOCKS if block.language != "python" for command in commands_in(block)]
OTHERS = [each for block in BLOCKS for each in commands_in(block, ("pip", "make", "python", ".venv/bin/python"))]
INLINE = [
    Command(f"{page.relative_to(ROOT)}", tuple(words.split()))
    for page in PAGES
    for words in re.findall(r"`(macs [^`]+)`", page.read_text(encoding="utf-8"))
]
PYTHON = [block for block in BLOCKS if block.language == "python"]

# Python blocks that are only compiled, by a line of theirs, and why they are not run.
NOT_RUN = {
    "class SmallNet(nn.Module):": "a sketch; examples/your_model.py has the whole class, which the next blocks use",
    "from macs.serve.on_ray import application": "starts a Ray cluster; tests/serve/test_on_ray.py does",
    'providers=["cuda", "cpu"]': "needs a GPU; tests/detector/test_runtime.py has the CPU alone",
}
EVERYWHERE = (QUIET, TRACEBACK, VERBOSE)  # options that are gone before a command line is parsed
OPERATORS = 'operators = library.Library("torchvision", "FRAGMENT")'  # in a block that has a test of its own


def parsed_by(words: tuple[str, ...]) -> None:
    app.parse_args(list(words), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_line_is_understood(command: Command) -> None:
    words = tuple(word for word in command.words[1:] if word not in EVERYWHERE)
    if "..." in words:  # the rest is named in the text above it
        check_names(command)
        return
    try:
        parsed_by(words)
    except CycloptsError as error:
        pytest.fail(f"{command}: {error}")


@pytest.mark.parametrize("command", INLINE, ids=str)
def test_commands_and_options_in_a_sentence_exist(command: Command) -> None:
    check_names(command)


def check_names(command: Command) -> None:
    """The command exists, and so do all options that are given to it."""
    node: App = app
    words = list(command.words[1:])
    while words and words[0] in list(node) and not words[0].startswith("-"):
        node = node[words.pop(0)]
    assert node is not app or words[0] in list(app), f"{command}: no such command"
    known = {"--help", *EVERYWHERE, *app}
    if node.default_command:
        known |= {name for argument in node.assemble_argument_collection() for name in argument.names}
        known |= {name for argument in node.assemble_argument_collection() for name in argument.negatives}
    for word in words:
        if re.match(r"--\w", word):
            assert re.split(r"[.=,;:)]", word)[0] in known, f"{command}: no option {word}"


def test_a_wrong_command_line_would_be_noticed() -> None:
    for line in ("macs finetune --epoch 3", "macs finetun", "macs predict photos/", "macs evaluate r --ood a --size x"):
        with pytest.raises(CycloptsError):
            parsed_by(tuple(shlex.split(line)[1:]))
    for line in ("macs predict --treshold", "macs dator"):
        with pytest.raises(AssertionError):
            check_names(Command("", tuple(line.split())))


@pytest.mark.parametrize("command", OTHERS, ids=str)
def test_other_programs_get_what_exists(command: Command) -> None:
    program, *words = command.words
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for names in re.findall(r"macs-ood\[(.+?)\]", " ".join(words)):
            assert set(names.split(",")) <= set(extras), command
        for place, word in enumerate(words[:-1]):
            if word in ("-r", "-c"):
                assert (ROOT / words[place + 1]).is_file(), command
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text()
        targets = re.findall(r"^([\w./%-]+):", makefile, flags=re.MULTILINE)
        variables = re.findall(r"^(\w+) *\?=", makefile, flags=re.MULTILINE)
        for word in words:
            name, given, _ = word.partition("=")
            assert name in (variables if given else [*targets, ".venv/dev-installed", ".venv/demo-installed"]), command
    elif words[0].endswith(".py"):
        assert (ROOT / words[0]).is_file(), command


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small versions of all that the pages name: photographs, a run, detectors and weights."""
    folder = tmp_path_factory.mktemp("world")
    save(two_classes(48, 1), folder / "photos/known/train")
    save(two_classes(60, 2), folder / "photos/known/val")
    save(two_classes(30, 3), folder / "photos/known/test")
    save(two_classes(30, 3), folder / "photos/val")
    for split, seed in (("train", 4), ("test", 5)):
        save(noise(40, seed), folder / "photos/unknown" / split)
    save(noise(1, 6), folder)
    (folder / "000.png").rename(folder / "holiday.jpg")
    torch.save(macs.nets.build("resnet-18", classes=100).state_dict(), folder / "best.ckpt")
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        training = "--id photos/known --size 16 --net wrn-10-1 --epochs 1 --batch-in 16 --precision float32"
        outliers = "--outliers photos/unknown --batch-out 16"
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


def test_the_operators_that_torchvision_lacks_can_be_defined() -> None:
    """In a process of its own: tests/conftest.py has defined them for this one."""
    (block,) = [block for block in PYTHON if OPERATORS in block.text]
    network = "import macs\nprint(macs.nets.build('torchvision/resnet18', classes=2).classes)"
    command = [sys.executable, "-c", f"{block.text}\n{network}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr


def test_every_exception_is_still_needed() -> None:
    for line in (*NOT_RUN, OPERATORS):
        assert any(line in block.text for block in PYTHON), f"no page has {line!r} any more"


def test_blocks_are_found() -> None:
    assert len(COMMANDS) > 80 and len(PYTHON) > 25 and len(INLINE) > 80 and isinstance(PYTHON[0], Block)
    assert os.fspath(ROOT / "README.md") in {os.fspath(block.page) for block in PYTHON}
