"""The command line: parse, call, print. One file for each group of commands; macs.__main__ answers for errors.

Nothing heavy is imported before a command needs it: `macs --help` and mistakes are answered without torch.
"""

import importlib
from collections.abc import Sequence

from macs.cli._app import app
from macs.core.registry import modules_in

for _module in modules_in(__name__):
    importlib.import_module(f"{__name__}.{_module}")


def run(arguments: Sequence[str]) -> None:
    """Run the command that the arguments name; errors are raised."""
    app(arguments, exit_on_error=False, print_error=False)


def what_is_left(command: Sequence[str]) -> str:
    """After Ctrl-C: how to go on with a command."""
    if command and command[0] in ("pretrain", "finetune"):
        return "The same command with --resume goes on after the last finished epoch."
    if command and command[0] in ("data", "demo", "sweep", "reproduce"):
        return "The same command goes on where it stopped."
    return "Nothing is left half-written."
