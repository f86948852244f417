"""The command line, called as a user calls it."""

import os
import subprocess
import sys

import pytest

from macs.__main__ import main


def run(*arguments: object, expect: int = 0) -> None:
    """Call the command in this process; a success may or may not raise SystemExit(0)."""
    sys.argv = ["macs", *map(str, arguments)]
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    assert code == expect


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence that a mistake gets."""
    run(*arguments, expect=2)
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err
    (line,) = captured.err.strip().splitlines()
    assert line.startswith("error: ")
    return line


def needs_torch(*arguments: str) -> bool:
    """Whether the command imports torch, asked of a process of its own that finds no data."""
    code = f"""
import sys
sys.argv = {["macs", *arguments]!r}
from macs.__main__ import main
try:
    main()
except SystemExit:
    pass
sys.exit(3 if "torch" in sys.modules else 0)
"""
    elsewhere = {**os.environ, "MACS_DATA": "nowhere"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=elsewhere, check=False)
    assert done.returncode in (0, 3), done.stderr
    return done.returncode == 3
