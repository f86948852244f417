"""The command line: parse, call, print. One file per group of commands; macs.__main__ handles errors.

COMMANDS lists them all. Nothing heavy is imported before a command needs it: `macs --help`, which people wait for, and
error messages work without torch.
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from macs.core import lazily
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from cyclopts import MissingArgumentError

    from macs.cli._app import app as app


WIDEST = 100  # columns

ABOUT = """Equip an image classifier with out-of-distribution (OOD) detection.

Four commands make a detector from a classifier, with the datasets in $MACS_DATA:

    macs finetune --id cifar10 --outliers 300k --checkpoint classifier.pt --run runs/mine
    macs evaluate runs/mine --ood svhn textures places365
    macs calibrate runs/mine --out detector.safetensors
    macs predict photos/ --detector detector.safetensors

Every command takes `--help`; `--quiet`, which hides progress and messages; `--verbose`, which logs what was read,
which device and precision were chosen and why, and how long each stage took; and `--traceback`, which shows where
an error happened."""

COMMANDS = {  # in the order in which a user needs them; a command's file is imported when the command is called
    "Start": {
        "quickstart": (
            "quickstart:quickstart",
            "Make a detector from a folder of photographs, with one folder per class: train, calibrate, check, and "
            "report.",
        ),
        "demo": ("demo:demo", "Show the paper's idea on embedded images: no download, a minute on two cores."),
        "doctor": (
            "doctor:doctor",
            "Report what is installed, where networks run and why, which data is on disk, and how to get what is "
            "missing.",
        ),
    },
    "Data": {
        "data": ("data:commands", "List the datasets, check those on disk, and download others."),
    },
    "Train": {
        "pretrain": (
            "train:pretrain",
            "Train a classifier from scratch, without outliers: the baseline MSP, from which all methods start.",
        ),
        "finetune": ("train:finetune", "Fine-tune a classifier with its own images and auxiliary outliers."),
        "sweep": (
            "sweep:sweep",
            "Choose the margin of MaCS: fine-tune with each one from the same weights, and compare on held-out images.",
        ),
    },
    "Measure": {
        "evaluate": (
            "evaluate:evaluate",
            "Measure how well a classifier's confidence tells its own test images from unknown ones.",
        ),
        "report": (
            "report:report",
            "Write a report on what a network knows and does not know: one HTML page that opens in any browser.",
        ),
    },
    "Use": {
        "calibrate": (
            "calibrate:calibrate",
            "Turn a classifier into a detector: find the threshold that keeps a share of ID images.",
        ),
        "predict": (
            "predict:predict",
            "Decide for each image or row whether it is ID or OOD, with its most likely class, confidence and p-value.",
        ),
        "export": ("export:export", "Write a detector as one ONNX file that needs neither macs nor torch."),
        "inspect": (
            "inspect:inspect",
            "Show the content of a detector file, without torch and without running code from it.",
        ),
        "serve": (
            "serve:serve",
            "Serve a detector over HTTP, without torch: verdicts, metrics, and a web page to try it.",
        ),
        "push": (
            "push:push",
            "Publish a detector on the Hugging Face hub, with a model card; others then use it as hf://org/name.",
        ),
    },
    "Paper": {
        "reproduce": (
            "reproduce:reproduce",
            "Reproduce tables and figures of the paper, with the paper's numbers beside ours.",
        ),
    },
}
OPTIONS = {
    "--help, -h": "Show this page; after a command, its own.",
    "--version": "Show the versions of macs, Python, torch and ONNX Runtime.",
    "--install-completion": "Let the shell complete the commands and options of macs.",
}


def page(own: Mapping[str, str]) -> str:
    """The page: what macs is, then the commands (`own` are the user's) and options, as wide as the terminal allows."""
    width = min(shutil.get_terminal_size().columns, WIDEST)
    parts = [part if part.startswith(" ") else fill(part, width) for part in ABOUT.split("\n\n")]
    groups = {title: {name: line for name, (_, line) in group.items()} for title, group in COMMANDS.items()}
    for title, group in [*groups.items(), ("Yours", own), ("Options", OPTIONS)]:
        indented = 4 + max(map(len, group), default=0)
        lines = [
            fill(line, width, initial_indent=f"  {name}".ljust(indented), subsequent_indent=" " * indented)
            for name, line in group.items()
        ]
        parts += ["\n".join([title, *lines])] if lines else []
    return "\n\n".join(["Usage: macs COMMAND", *parts])


__getattr__ = lazily(__name__, {"app": "macs.cli._app"})


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code; errors are raised."""
    if not arguments or arguments[0] in ("--help", "-h"):
        print(page(_own_commands()))
        return 0
    from cyclopts import CycloptsError, MissingArgumentError

    from macs.cli._app import app

    if any(is_empty(argument) for argument in arguments):  # an empty path would mean the current folder
        raise MacsError("One of the arguments is empty; give it a value, or leave it out.")
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except MissingArgumentError as error:
        raise MacsError(_what_is_missing(error, arguments)) from error
    except CycloptsError as error:
        if any(argument.startswith(("--confidence-level", "--confidence_level")) for argument in arguments):
            raise MacsError("The confidence level is called --keep: the share of new ID images to keep.") from error
        raise MacsError(str(error)) from error
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else 0 if request.code is None else 1
    return 0


def _own_commands() -> dict[str, str]:
    """The commands that the user's own modules have registered, with the first sentence of their help."""
    registry = sys.modules.get("macs.cli._app")  # if it is not imported yet, nobody has added to it
    ours = {name for group in COMMANDS.values() for name in group}
    if registry is None:
        return {}
    names = [name for name in registry.app if name[0] != "-" and name not in ours]
    return {name: " ".join(registry.app[name].help.partition("\n\n")[0].split()) for name in names}


def is_empty(argument: str) -> bool:
    """Return whether an argument, or the value in --option=value, is empty or blank."""
    option, equals, value = argument.partition("=")
    return not (value if option.startswith("--") and equals else argument).strip()


def _what_is_missing(error: "MissingArgumentError", arguments: Sequence[str]) -> str:
    """Return which argument a command needs, or which option needs a value; cyclopts has the same words for both."""
    command = " ".join(["macs", *(error.command_chain or ())])
    name = error.argument.name if error.argument else ""
    if error.keyword or not name or name in arguments:
        return f"{error.keyword or name or 'An option'} needs a value; see {command} --help."
    return f"{command} needs {name}; see {command} --help."
