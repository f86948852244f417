"""The command `macs`, and what its subcommands share: option types and printing."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Group, Parameter, Token
from cyclopts.command_spec import CommandSpec

from macs.core.console import Terminal
from macs.core.settings import Span, shown
from macs.core.text import printable


def _version() -> str:
    from macs.doctor import version_line

    return version_line()


app = App(
    name="macs",
    version=_version,
    help="""Equip an image classifier with out-of-distribution (OOD) detection.

    Four commands make a detector from a classifier, with the datasets in $MACS_DATA:

        macs finetune --id cifar10 --outliers 300k --checkpoint classifier.pt --run runs/mine
        macs evaluate runs/mine --ood svhn textures places365
        macs calibrate runs/mine --out detector.safetensors
        macs predict photos/ --detector detector.safetensors

    Every command takes `--help`; `--quiet`, which hides progress and messages; `--verbose`, which logs what was read,
    which device and precision were chosen and why, and how long each stage took; and `--traceback`, which shows where
    an error happened.""",
    help_format="markdown",
    console=Terminal(),
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command()

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
OPTIONS = ("--help", "--version", "--install-completion")


class Command(CommandSpec):
    """A command whose file is imported when it is called; from then on its docstring is its help."""

    def resolve(self, parent_app: App) -> App:
        self.help = None
        return super().resolve(parent_app)


for _order, (_title, _commands) in enumerate(COMMANDS.items()):
    _group = Group(_title, sort_key=_order)
    for _place, (_name, (_path, _summary)) in enumerate(_commands.items()):
        # app.command(path) would keep the summary as the command's whole help.
        app._commands[_name] = Command(f"macs.cli.{_path}", _name, help=_summary, group=_group, sort_key=_place)
_group = Group("Options", sort_key=len(COMMANDS))
for _place, _name in enumerate(OPTIONS):
    app[_name].group, app[_name].sort_key = (_group,), _place

Flag = Parameter(negative="")
Several = Parameter(consume_multiple=True, negative="")  # an option followed by any number of values
DATA_HELP = "Folder of the datasets [default: $MACS_DATA, else the user's cache folder]."
NoCache = Annotated[
    bool,
    Flag,
    Parameter(help="Run the network on every image again: neither use nor keep outputs in the cache folder."),
]
Json = Annotated[bool, Flag, Parameter(help="Print the results as JSON.")]


def whole_number(kind: Any, tokens: Sequence[Token]) -> int:
    """An int as written; cyclopts would silently round 1.5 to 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"it must be a whole number, not {shown(tokens[0].value)}.") from None


Data = Annotated[Path | None, Parameter(help=DATA_HELP)]
Whole = Annotated[int, Parameter(converter=whole_number)]
FprRuleOption = Annotated[
    Literal["first", "nearest"],
    Parameter(help="Threshold of FPR95: the first that reaches 95%, or the nearest to it, as in the authors' code."),
]
Settings = Annotated[
    dict[str, float | str | bool] | None,
    Parameter(name="--score", help="A setting of the score, for example --score.k 10 (docs/scores.md)."),
]


@dataclass(frozen=True)
class Hardware:
    """The options of a command that runs networks."""

    device: str = "auto"
    """Where networks run: cpu, cuda, cuda:1, mps, or auto, which takes a GPU if there is one."""

    threads: Whole | None = None
    """Threads of networks on the CPU [default: one per core]."""

    workers: Whole | None = None
    """Threads that decode pictures [default: one per core, at most 8]."""

    def prepare(self) -> None:
        """Apply the options that do not need torch."""
        from macs.data.prefetch import set_workers

        set_workers(self.workers)
        if self.threads is not None:
            Span(1, 1024).hold("--threads", self.threads)

    def use(self) -> None:
        """Apply these options to torch, which is not imported if none of them is given."""
        self.prepare()
        if self.device != "auto":
            from macs.core.devices import use_device

            use_device(self.device)
        if self.threads is not None:
            import torch

            torch.set_num_threads(self.threads)


HardwareOptions = Annotated[Hardware, Parameter(name="*")]
ANY_HARDWARE = Hardware()


def show(table: Any, value: Mapping[str, Any], as_json: bool) -> None:
    """Print results to standard output: a table for people, or one JSON object for programs."""
    if as_json:
        print(json.dumps(value, indent=2), flush=True)
    elif isinstance(table, str):
        print(*map(printable, table.split("\n")), sep="\n", flush=True)
    else:
        Terminal(width=None if sys.stdout.isatty() else 120).print(table)
