"""Every command line in README and docs is one that the command line understands, and every Python block runs."""

import os
import re
import shlex
import tomllib

import pytest
from cyclopts import App, CycloptsError

from macs.__main__ import QUIET, TRACEBACK, VERBOSE
from macs.cli._app import app
from snippets import PAGES, ROOT, Block, Command, blocks_of, commands_in

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
    "from ray_serve import application": "starts a Ray cluster; tests/integration/serve/test_ray_serve.py does",
    'providers=["cuda", "cpu"]': "needs a GPU; tests/integration/detector/test_runtime.py has the CPU alone",
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


def test_every_exception_is_still_needed() -> None:
    for line in (*NOT_RUN, OPERATORS):
        assert any(line in block.text for block in PYTHON), f"no page has {line!r} any more"


def test_blocks_are_found() -> None:
    assert len(COMMANDS) > 80 and len(PYTHON) > 25 and len(INLINE) > 80 and isinstance(PYTHON[0], Block)
    assert os.fspath(ROOT / "README.md") in {os.fspath(block.page) for block in PYTHON}
