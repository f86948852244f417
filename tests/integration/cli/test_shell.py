"""The command line in a shell: completion, --quiet, --verbose, and output with and without a terminal."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from command import needs_torch, refused, run
from macs.core import console
from tiny import noise, save, stripes

LOGGED = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (macs[\w.]*): (.+)")
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
    assert list(console.track(iter("ab"), 2, "steps", show=True)) == ["a", "b"]
    assert capsys.readouterr().err == ""
    console.terminal().print("a result")
    assert capsys.readouterr().out == "a result\n"
    with pytest.warns(match="doubtful"):
        console.warn("doubtful")


@pytest.fixture
def _taken_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the options set for the whole process is as before."""
    for variable in (console.QUIET, console.VERBOSE):
        monkeypatch.setenv(variable, "")
    yield
    monkeypatch.undo()
    console.show_log()


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """Images in class folders, and others in a .npy file."""
    for split, seed in (("train", 1), ("test", 2)):
        save(stripes(24, seed), tmp_path / "mine" / split)
    np.save(tmp_path / "unknown.npy", noise(20, seed=3).pixels[:])
    return tmp_path


def pretraining(sets: Path, run: str) -> list[object]:
    options = "--size 16 --net wrn-10-1 --epochs 1 --batch-in 8 --precision float32 --threads 1 --json"
    return ["pretrain", "--id", sets / "mine", *options.split(), "--run", sets / run]


@pytest.mark.usefixtures("_taken_back")
def test_every_command_takes_quiet(sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("data", "list", "--quiet", "--json")
    assert capsys.readouterr().out.startswith("{") and os.environ[console.QUIET] == "1"
    run(*pretraining(sets, "quiet"))
    captured = capsys.readouterr()
    assert json.loads(captured.out)["history"]
    assert all(line.startswith("warning: ") for line in captured.err.splitlines())


@pytest.mark.usefixtures("_taken_back")
def test_verbose_tells_what_was_read_and_chosen_and_how_long_it_took(
    sets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(*pretraining(sets, "told"), "--verbose")
    captured = capsys.readouterr()
    assert json.loads(captured.out)["history"]  # standard output holds the result alone
    (epoch, *warnings), logged = told(captured.err)
    assert epoch.startswith("msp epoch 1/1") and all(line.startswith("warning: ") for line in warnings)
    lines = logged["macs"] + logged["macs.data.loading"] + logged["macs.training.distributed"]
    for expected in (
        r"macs \d.*, Python 3\.",
        r"macs pretrain --id .*/mine ",
        rf"{sets}/mine is the folder {sets}/mine/train",
        rf"{sets}/mine: 24 images of 3 classes, 16 pixels wide",
        rf"loading {sets}/mine took \d+\.\d\d s",
        r"training on \w+ \(.+\), 1 thread, in float32 \(as asked\)",
        r"the command took \d+\.\d\d s",
    ):
        assert sum(re.match(expected, line) is not None for line in lines) == 1, expected
    assert re.fullmatch(r"epoch 1 took \d+\.\d\d s", logged["macs.training.checkpointing"][0])

    unknown = sets / "unknown.npy"
    run("evaluate", sets / "told", "--ood", unknown, "--trials", 2, "--threads", 1, "--json")  # the variable is set
    warnings, logged = told(capsys.readouterr().err)
    assert all(line.startswith("warning: ") for line in warnings)
    assert any(f"tensors of {sets}/told/net.safetensors" in line for line in logged["macs.nets._checkpoints"])
    passes = [line for line in logged["macs.inference"] if line.startswith("scoring")]
    assert [line.partition(" took ")[0] for line in passes] == [
        f"scoring {sets / 'mine'}, 24 images,",
        f"scoring {unknown}, 20 images,",
    ]
    assert any(line.startswith("wrn-10-1 runs on") and " in " in line for line in logged["macs.inference"])

    monkeypatch.setenv(console.VERBOSE, "")
    run("inspect", sets / "told" / "net.safetensors", expect=2)
    assert told(capsys.readouterr().err)[1] == {}


def told(err: str) -> tuple[list[str], dict[str, list[str]]]:
    """The lines of standard error that are no log, and those of the log by the module that wrote them."""
    others: list[str] = []
    logged: dict[str, list[str]] = {}
    for line in err.splitlines():
        match = LOGGED.fullmatch(line)
        others += [] if match else [line]
        if match:
            logged.setdefault(match[1], []).append(match[2])
    return others, logged


@pytest.mark.usefixtures("_taken_back")
def test_quiet_and_verbose_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused(capsys, "--quiet", "data", "list", "--verbose")
    assert sentence == "error: --quiet and --verbose contradict each other; leave one of them out."


@pytest.mark.usefixtures("_taken_back")
@pytest.mark.parametrize(("option", "variable"), [("--quiet", console.QUIET), ("--verbose", console.VERBOSE)])
def test_an_option_counts_more_than_a_variable(option: str, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (console.QUIET, console.VERBOSE):
        monkeypatch.setenv(each, "" if each == variable else "1")
    run("data", "list", option, "--json")
    assert [each for each in (console.QUIET, console.VERBOSE) if os.environ.get(each)] == [variable]


def test_a_process_that_a_command_starts_is_as_verbose() -> None:
    command = [sys.executable, "-m", "macs", "data", "list", "--json"]
    asked = {**os.environ, console.VERBOSE: "1"}
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=True)
    others, logged = told(done.stderr)
    assert not others and logged["macs"][1] == "macs data list --json" and json.loads(done.stdout)


def test_verbose_imports_no_torch() -> None:
    assert not needs_torch("--help", "--verbose") and not needs_torch("data", "list", "--verbose")


def in_a_terminal(**variables: str) -> str:
    """What `macs predict --help` prints where standard output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "CI")}
    process = subprocess.Popen(
        [sys.executable, "-m", "macs", "predict", "--help"],
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
    command = [sys.executable, "-m", "macs", "predict", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout + done.stderr
