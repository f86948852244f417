"""Calls `macs` as a user does, many times without importing torch anew.

A server process imports what the commands need and runs none of them; each call is a fork of it, with arguments, a
working folder, an environment and streams of its own.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SECONDS = 400  # after which a command hangs


def called(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """The exit code of a command in this folder, None if it did not end, and all that it wrote.

    The server starts at the first call, with the environment that this process has then; $PYTHONPATH must lead to the
    module `preloaded`.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["preloaded"])
    output = folder / ".output"
    process = context.Process(target=become, args=(words, folder, output, dict(environment)))
    process.start()
    process.join(SECONDS)
    code = process.exitcode
    process.kill()
    process.join()
    return code, output.read_text(encoding="utf-8", errors="replace")


def become(words: Sequence[str], folder: Path, output: Path, environment: Mapping[str, str]) -> None:
    """Run the command that the words name, and end with it."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    from macs.__main__ import main
    from shortened import BEFORE

    sys.argv = list(words)
    if words[1] in BEFORE:
        BEFORE[words[1]]()
    main()
