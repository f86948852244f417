"""The command line in a shell: completion, --quiet, and output with and without a terminal."""

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command import run
from macs.core import console

COLOUR = re.compile(r"\x1b\[[\d;]*3\d")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("macs cali", "calibrate"), ("macs calibrate --ke", "--keep"), ("macs data ch", "check")],
)
def test_bash_completes_commands_and_options(words: str, expected: str, tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "macs", "--install-completion", "--shell", "bash"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    (script,) = tmp_path.rglob("completions/macs")
    asked = f"""
source {script}
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{words}'; COMP_POINT=${{#COMP_LINE}}
$(complete -p macs | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [expected]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_scripts(shell: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "macs", "--install-completion", "--shell", shell]
    subprocess.run(command, env={**os.environ, "HOME": str(tmp_path)}, check=True, capture_output=True)
    (script,) = [path for path in tmp_path.rglob("*macs*") if path.is_file()]
    assert all(word in script.read_text() for word in ("calibrate", "keep", "doctor"))
    if shutil.which(shell):
        subprocess.run([shell, "-n", str(script)], check=True)


def test_quiet_leaves_out_messages_but_no_results_and_no_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(console.QUIET, raising=False)
    console.tell("at work")
    assert capsys.readouterr().err == "at work\n"
    monkeypatch.setenv(console.QUIET, "1")
    console.tell("at work")
    assert list(console.track(iter([1, 2]), 2, "steps", show=True)) == [1, 2]
    assert capsys.readouterr().err == ""
    console.Terminal().print("a result")
    assert capsys.readouterr().out == "a result\n"
    with pytest.warns(match="doubtful"):
        console.warn("doubtful")


def test_every_command_takes_quiet(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(console.QUIET, "")  # so that the variable is taken back
    run("data", "list", "--quiet", "--json")
    assert capsys.readouterr().out.startswith("{") and os.environ[console.QUIET] == "1"


def in_a_terminal(**variables: str) -> str:
    """What `macs data list` prints where standard output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-m", "macs", "--help"],
        stdout=theirs,
        stderr=theirs,
        env={**environment, "TERM": "xterm-256color", **variables},
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not chunk:
            break
        output += chunk
    process.wait(timeout=60)
    os.close(ours)
    return output.decode()


def test_colours_are_for_terminals_that_want_them() -> None:
    assert COLOUR.search(in_a_terminal())
    assert not COLOUR.search(in_a_terminal(NO_COLOR="1"))
    done = subprocess.run([sys.executable, "-m", "macs", "--help"], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout + done.stderr
