"""The command `macs`, and what its subcommands share: option types and printing."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from cyclopts import App, Parameter, Token
from cyclopts.command_spec import CommandSpec

from macs.cli._page import ABOUT, COMMANDS
from macs.core.settings import Span, shown
from macs.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console


class Later:
    """A terminal that is made when something is printed on it, so that an error does not wait for rich."""

    def __getattr__(self, name: str) -> Any:
        from macs.core.console import terminal

        return getattr(terminal(), name)


def _version() -> str:
    from macs.doctor import version_line

    return version_line()


app = App(
    name="macs",
    version=_version,
    help=ABOUT,
    help_format="markdown",
    console=cast("Console", Later()),
    error_console=cast("Console", Later()),
    suppress_keyboard_interrupt=False,
)


class Command(CommandSpec):
    """A command whose file is imported when it is called; from then on its docstring is its help."""

    def resolve(self, parent_app: App) -> App:
        self.help = None
        return super().resolve(parent_app)


for _place, (_name, (_path, _summary)) in enumerate(
    command for group in COMMANDS.values() for command in group.items()
):
    # app.command(path) would keep the summary as the command's whole help.
    app._commands[_name] = Command(f"macs.cli.{_path}", _name, help=_summary, sort_key=_place)
app._commands["--install-completion"] = Command("macs.cli._completion:install", "--install-completion")

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
        from macs.data.batches import set_workers

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
        from macs.core.console import terminal

        terminal(width=None if sys.stdout.isatty() else 120).print(table)
