"""The command line: parse, call, print. One file for each group of commands; macs.__main__ answers for errors.

Nothing heavy is imported before a command needs it: `macs --help` and mistakes are answered without torch.
"""

import importlib
from collections.abc import Sequence

from cyclopts import CycloptsError, Group

from macs.cli._app import GROUPS, app
from macs.core.errors import MacsError
from macs.core.registry import modules_in

for _module in modules_in(__name__):
    importlib.import_module(f"{__name__}.{_module}")

for _place, (_title, _commands) in enumerate(GROUPS.items()):
    _group = Group(_title, sort_key=_place)
    for _position, _command in enumerate(_commands):
        app[_command].group, app[_command].sort_key = (_group,), _position


def run(arguments: Sequence[str]) -> int:
    """Run the command that the arguments name, and return its exit code; errors are raised."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        raise MacsError(str(error)) from error
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0
