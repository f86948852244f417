"""The command line: parse, call, print. One file per group of commands; macs.__main__ handles errors.

Nothing heavy is imported before a command needs it: `macs --help` and error messages work without torch.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from macs.core import lazily
from macs.core.errors import MacsError

if TYPE_CHECKING:
    from cyclopts import MissingArgumentError

    from macs.cli._app import app as app

__getattr__ = lazily(__name__, {"app": "macs.cli._app"})


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code; errors are raised."""
    if not arguments or arguments[0] in ("--help", "-h"):
        from macs.cli._page import page

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
        raise MacsError(str(error)) from error
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else 0 if request.code is None else 1
    return 0


def _own_commands() -> dict[str, str]:
    """The commands that the user's own modules have registered, with the first sentence of their help."""
    from macs.cli._page import COMMANDS

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
