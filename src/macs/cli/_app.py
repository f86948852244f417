"""The command `macs`, and what its subcommands share: option types, default OOD sets and printing."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, Token

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

    From a classifier to a detector in four lines, with your data root in $MACS_DATA:

        macs finetune --id cifar10 --outliers 300k --checkpoint classifier.pt --run runs/mine
        macs evaluate runs/mine --ood svhn textures places365
        macs calibrate runs/mine --out detector.safetensors
        macs predict photos/ --detector detector.safetensors

    Every command takes `--help`; `--quiet`, which leaves out bars and messages; `--verbose`, which tells what was read,
    which device and precision were chosen and why, and how long each stage took; and `--traceback`, which shows where
    an error happened.""",
    help_format="markdown",
    console=Terminal(),
    suppress_keyboard_interrupt=False,
)
app.register_install_completion_command()

GROUPS = {  # the commands in the order in which a user needs them
    "Start": ("quickstart", "demo", "doctor"),
    "Data": ("data",),
    "Train": ("pretrain", "finetune", "sweep"),
    "Measure": ("evaluate", "report"),
    "Use": ("calibrate", "predict", "export", "inspect", "serve", "push"),
    "Paper": ("reproduce",),
    "Options": ("--help", "--version", "--install-completion"),
}

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


def ood_sets_for(id: str, data: Path | None) -> list[str]:
    """The catalogue's OOD sets on disk: those that come with packages if the ID set does too, else the others."""
    from macs.data.catalog import catalog
    from macs.data.loading import available, catalog_rows

    embedded = id in available() and bool(catalog[id].packages)
    names = (row.name for row in catalog_rows(data) if row.role == "ood" and "test" in row.found)
    return [name for name in names if name != id and bool(catalog[name].packages) == embedded]


def show(table: Any, value: Mapping[str, Any], as_json: bool) -> None:
    """Print results to standard output: a table for people, or one JSON object for programs."""
    if as_json:
        print(json.dumps(value, indent=2), flush=True)
    elif isinstance(table, str):
        print(*map(printable, table.split("\n")), sep="\n", flush=True)
    else:
        Terminal(width=None if sys.stdout.isatty() else 120).print(table)
