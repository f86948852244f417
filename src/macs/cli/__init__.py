"""The command line: parse, call, print. One file for each group of commands.

Nothing heavy is imported before a command needs it: `macs --help` and mistakes are answered without torch.
"""

import importlib
import os
import sys

from cyclopts import CycloptsError
from rich.console import Console
from rich.markup import escape

from macs.cli._app import app
from macs.core.errors import MacsError
from macs.core.registry import modules_in

for _module in modules_in(__name__):
    importlib.import_module(f"{__name__}.{_module}")


def main() -> None:
    """Entry point; mistakes of the user become one sentence and exit code 2."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app(sys.argv[1:], exit_on_error=False, print_error=False)
    except (MacsError, CycloptsError) as error:
        errors.print(f"[bold red]error:[/] {escape(str(error))}")
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print(f"Stopped. {what_is_left(sys.argv[1])}")
        sys.exit(130)
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def what_is_left(command: str) -> str:
    """After Ctrl-C: how to go on with a command."""
    if command in ("pretrain", "finetune"):
        return "The same command with --resume goes on after the last finished epoch."
    if command in ("data", "demo", "sweep", "reproduce"):
        return "The same command goes on where it stopped."
    return "Nothing is left half-written."
