"""The command line: parse, call, print. One file per group of commands; macs.__main__ handles errors.

Nothing heavy is imported before a command needs it: `macs --help` and error messages work without torch.
"""

from collections.abc import Sequence

from cyclopts import CycloptsError, MissingArgumentError

from macs.cli._app import app
from macs.core.errors import MacsError


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code; errors are raised."""
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


def is_empty(argument: str) -> bool:
    """Return whether an argument, or the value in --option=value, is empty or blank."""
    option, equals, value = argument.partition("=")
    return not (value if option.startswith("--") and equals else argument).strip()


def _what_is_missing(error: MissingArgumentError, arguments: Sequence[str]) -> str:
    """Return which argument a command needs, or which option needs a value; cyclopts has the same words for both."""
    command = " ".join(["macs", *(error.command_chain or ())])
    name = error.argument.name if error.argument else ""
    if error.keyword or not name or name in arguments:
        return f"{error.keyword or name or 'An option'} needs a value; see {command} --help."
    return f"{command} needs {name}; see {command} --help."
