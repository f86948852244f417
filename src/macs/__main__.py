"""The entry point of `macs` and `python -m macs`, which turns every error into one sentence and an exit code.

The sentence goes to standard error; `--traceback` shows where the error happened, and `--verbose` what led to it.
Nothing heavy is imported before the handlers are in place, so that Ctrl-C works at any moment.

    0    all went well               2     a mistake that the user can correct   130   stopped by Ctrl-C
    1    done, but some of it failed 70    a bug in macs itself                  141   the output's reader went away
"""

import errno
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any, NoReturn

TRACEBACK, QUIET, VERBOSE = "--traceback", "--quiet", "--verbose"  # every command takes them, anywhere on its line
NO_MEMORY = ("can't allocate memory", "out of memory", "could not create a primitive")  # said by torch, CUDA and oneDNN
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command that the arguments name."""
    given = {TRACEBACK, QUIET, VERBOSE}.intersection(sys.argv)
    sys.argv = [argument for argument in sys.argv if argument not in given]
    prepare_signals()
    try:
        prepare_streams()
        prepare_warnings()
        log = prepare_log(given)
        from macs.cli import run
        from macs.core.console import timed
        from macs.core.interpreter import keep_freed_memory

        keep_freed_memory()
        with timed(log, "the command"):
            code = run(sys.argv[1:])
        sys.stdout.flush()
        if code:
            end(code)
    except KeyboardInterrupt:
        end(130, f"Stopped. {what_is_left(sys.argv[1:2])}")
    except BrokenPipeError:  # the reader of the output, perhaps `head`, has stopped
        end(141)
    except SystemExit:
        raise
    except BaseException as error:
        if TRACEBACK in given:
            import traceback

            traceback.print_exc()
        end(*sentence(error))


def prepare_signals() -> None:
    """Exit in an orderly way on SIGTERM and SIGHUP, so that temporary files are removed."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # under nohup it stays ignored
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def prepare_streams() -> None:
    """Make sure that output can be printed, or say that it cannot."""
    from macs.core.errors import MacsError

    for number in (0, 1, 2):  # the next file that is opened would get the number of a closed stream
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")
    if sys.stdout is None:
        sys.stdout = sys.stderr
        raise MacsError("Standard output is closed, so results have nowhere to go; redirect it, perhaps to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # do not fail on a character that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")


def prepare_warnings() -> None:
    """Print our own warnings as plain sentences, every time they occur; of torchrun's processes, one speaks for all."""
    from macs.core.errors import MacsWarning
    from macs.core.text import printable

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, MacsWarning):
            print(printable(f"warning: {message}"), file=sys.stderr)
        else:
            others(message, category, *place, **more)

    others, warnings.showwarning = warnings.showwarning, show
    alone = os.environ.get("LOCAL_RANK", "0") == "0"
    warnings.simplefilter("always" if alone else "ignore", MacsWarning)


def prepare_log(given: Set[str]) -> logging.Logger:
    """Say as much as the options ask for, here and in the processes that the command starts."""
    import platform
    import shlex

    from macs.core import __version__, console
    from macs.core.errors import MacsError

    if {QUIET, VERBOSE} <= given:
        raise MacsError(f"{QUIET} and {VERBOSE} contradict each other; leave one of them out.")
    for option, variable, other in ((QUIET, console.QUIET, console.VERBOSE), (VERBOSE, console.VERBOSE, console.QUIET)):
        if option in given:
            os.environ[variable] = "1"
            os.environ.pop(other, None)
    console.show_log()
    log = logging.getLogger("macs")
    if log.isEnabledFor(logging.INFO):
        log.info("macs %s, Python %s, %s", __version__, platform.python_version(), platform.platform())
        log.info("%s", shlex.join(["macs", *sys.argv[1:]]))
    return log


def sentence(error: BaseException) -> tuple[int, str, str]:
    """Return the exit code for an error, a sentence about it, and details to print below the sentence."""
    from macs.core.errors import MacsError

    first = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, MacsError):
        return 2, f"error: {error.sentence}", error.details
    if isinstance(error, MemoryError) or any(words in first.lower() for words in NO_MEMORY):
        text = "There is not enough memory for this; use smaller batches, images or networks."
    elif isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        text = f"Cannot write any further: {error.strerror}; free some space, or write elsewhere."
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename is not None else ""
        text = f"{where}{error.strerror or first or type(error).__name__}."
    elif isinstance(error, UnicodeError):
        text = f"A string cannot be read or written in its encoding: {first}."
    elif isinstance(error, RecursionError):
        text = "Something in the input is nested too deeply to be read; check the input files."
    elif isinstance(error, ImportError):
        text = f"{first}; install macs-ood and its dependencies again."
    else:
        report = (
            "This is a bug in macs, not a mistake in your input. Please report it in the issue tracker of macs-ood, "
            f"with the command and its output with {TRACEBACK} added."
        )
        return 70, f"error: {type(error).__name__}: {first}", report
    return 2, f"error: {text}", ""


def what_is_left(command: Sequence[str]) -> str:
    """After Ctrl-C: how to continue the command."""
    if command and command[0] in ("pretrain", "finetune"):
        return "The same command with --resume continues after the last finished epoch."
    if command and command[0] in ("data", "demo", "quickstart", "reproduce", "sweep"):
        return "The same command continues where it stopped."
    return "Nothing is left half-written."


def end(code: int, text: str = "", details: str = "") -> NoReturn:
    """Exit with a code and at most one message, whatever state the streams are in."""
    from macs.core.text import printable

    with suppress(OSError):
        for line in filter(None, [text, *details.split("\n")]):
            print(printable(line), file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # otherwise Python would report it once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
