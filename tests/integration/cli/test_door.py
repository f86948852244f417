"""What every command does with broken streams, signals and errors: real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cases import slow

MACS = [sys.executable, "-m", "macs"]


def macs(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    options["env"] = {**os.environ, "MACS_DATA": "nowhere", **options.get("env", {})}
    return subprocess.run([*MACS, *map(str, arguments)], text=True, encoding="utf-8", check=False, **options)


def with_module(folder: Path, name: str, code: str) -> dict[str, str]:
    """An environment in which a module is another one."""
    (folder / f"{name}.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.parametrize("arguments", [["--help"], ["data", "list"], ["data", "list", "--json"], ["calibrate", "-h"]])
def test_a_reader_that_goes_away_is_code_141_everywhere(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = macs(*arguments, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["data", "list"], ["data", "list", "--json"]])
def test_a_full_disk_behind_standard_output_is_one_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = macs(*arguments, stdout=full)
    assert done.returncode == 2
    assert (
        done.stderr
        == "error: Cannot write any further: No space left on device; free some space, or write elsewhere.\n"
    )


def test_closed_streams() -> None:
    def close(*numbers: int) -> Callable[[], None]:
        def closing() -> None:
            for number in numbers:
                os.close(number)

        return closing

    done = macs("data", "list", preexec_fn=close(1))
    assert done.returncode == 2 and "Standard output is closed" in done.stderr
    assert macs("data", "list", preexec_fn=close(0, 1, 2)).returncode == 2
    done = macs("data", "list", "--json", preexec_fn=close(0, 2))
    assert done.returncode == 0 and json.loads(done.stdout)


@pytest.mark.parametrize("encoding", ["ascii", *slow("latin-1", "cp1252")])
@pytest.mark.parametrize("arguments", [["--help"], ["predict", "--help"], ["data", "list"], ["data", "list", "--json"]])
def test_an_encoding_without_our_characters_shows_others(arguments: list[str], encoding: str) -> None:
    done = macs(*arguments, env={"PYTHONIOENCODING": encoding})
    assert done.returncode == 0 and done.stderr == ""
    assert "\\u25" not in done.stdout, "boxes are drawn with what there is"


@pytest.mark.parametrize(("module", "command"), [("cyclopts", "data list"), ("torch", "pretrain --id digits")])
def test_ctrl_c_while_modules_are_imported(tmp_path: Path, module: str, command: str) -> None:
    env = with_module(tmp_path, module, "raise KeyboardInterrupt\n")
    done = macs(*command.split(), env=env)
    assert done.returncode == 130, done.stderr
    assert done.stderr.startswith("Stopped. The same command") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        ("OSError(28, 'No space left on device')", 2, "Cannot write any further: No space left"),
        ("PermissionError(13, 'Permission denied', 'x')", 2, "x: Permission denied."),
        ("MemoryError()", 2, "not enough memory"),
        ("RuntimeError('could not create a primitive')", 2, "not enough memory"),
        ('RuntimeError("DefaultCPUAllocator: can\'t allocate memory")', 2, "not enough memory"),
        ("UnicodeEncodeError('ascii', 'é', 0, 1, 'why')", 2, "encoding"),
        ("RecursionError()", 2, "nested too deeply"),
        ("ImportError('No module named x')", 2, "No module named x; install"),
        ("ValueError('\\x1b[31m first\\nsecond')", 70, "ValueError: \\x1b[31m first"),
        ("KeyError()", 70, "issue tracker"),
        ("BrokenPipeError()", 141, ""),
    ],
)
def test_every_error_is_a_sentence_and_a_code(tmp_path: Path, raised: str, code: int, words: str) -> None:
    env = with_module(tmp_path, "cyclopts", f"raise {raised}\n")
    done = macs("data", "list", env=env)
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == {2: 1, 70: 2, 141: 0}[code]
    if code == 70:
        assert "--traceback" in done.stderr
    if code != 141:
        assert "Traceback" in macs("data", "list", "--traceback", env=env).stderr


def test_a_data_folder_that_cannot_be_written_is_found_before_the_download(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = macs("data", "get", "cifar10", "--data", tmp_path / "file", "--mirror", "file:///nowhere")
    assert done.returncode == 2 and "is a file, not a folder" in done.stderr


def test_help_names_the_way_to_a_traceback() -> None:
    assert "--traceback" in macs("--help").stdout


def test_hang_up_is_ignored_under_nohup_and_ends_in_good_order_elsewhere(tmp_path: Path) -> None:
    env = with_module(
        tmp_path, "cyclopts", "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nraise ValueError\n"
    )
    plain = macs("demo", env=env, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    assert plain.returncode == 128 + signal.SIGHUP
    ignored = macs("demo", env=env, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert ignored.returncode == 70


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], {"cyclopts", "rich"}),
        (["predict", "--thresholds", "1"], {"rich"}),
        (["calibrate", "--thresholds", "1"], {"rich"}),
        (["serve", "--help"], set[str]()),
    ],
)
def test_help_and_wrong_options_import_only_what_they_print(arguments: list[str], absent: set[str]) -> None:
    absent |= {"numpy", "torch", "PIL"}
    code = (
        "import sys; from macs.cli import run\n"
        f"try: run({arguments})\nexcept Exception as error: assert '--threshold' in str(error)\n"
        f"assert not {absent} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
