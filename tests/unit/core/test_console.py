"""What is shown while work goes on: never on standard output, and only where somebody looks."""

import io
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

from macs.core.console import HUB, VERBOSE, one_line_about_the_hub, show_log, tell, terminal, timed, track, warn
from macs.core.errors import MacsWarning


def test_lines_go_to_standard_error_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    tell("[bold]3 of 7[/bold] " + "x" * 300)
    tell("not shown", show=False)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == "[bold]3 of 7[/bold] " + "x" * 300 + "\n"


@pytest.mark.parametrize("show", [True, False])
def test_tracked_items_come_one_by_one_and_without_a_terminal_in_silence(
    show: Any, capsys: pytest.CaptureFixture[str]
) -> Any:
    asked = []

    def numbers() -> Any:
        for number in range(3):
            asked.append(number)
            yield [number]

    for (number,) in track(numbers(), 3, "counting", show):
        assert asked[-1] == number and len(asked) == number + 1
    assert asked == [0, 1, 2] and capsys.readouterr() == ("", "")


def test_without_a_terminal_long_work_prints_lines_with_the_speed_of_all_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr("macs.core.console.time.monotonic", lambda: now)
    for batch in track(["x" * 8] * 49 + ["x" * 4], 396, "scoring svhn", show=True):
        now += 8 if now == 0 else len(batch) / 2  # the first batch takes twice as long
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scoring svhn: 16 of 396 images in 12 s, 1.3 images per second"
    seconds = [int(line.split(" images in ")[1].split(" s,")[0]) for line in lines]
    assert seconds == [12, 24, 48, 96, 156, 202]
    assert lines[-1] == "scoring svhn: 396 of 396 images in 202 s, 2.0 images per second"
    list(track(["x"] * 3, 3, "scoring svhn", show=False))
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("TERM", "xterm")
    assert list(track("ab", 2, "counting letters", show=True)) == ["a", "b"]
    captured = capsys.readouterr()
    assert captured.out == "" and "counting letters" in captured.err


def test_a_warning_is_ours_and_points_at_the_caller_of_the_function_that_warns() -> None:
    def function_of_ours() -> None:
        warn("Look again.")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function_of_ours()
    (warning,) = caught
    assert (warning.category, str(warning.message)) == (MacsWarning, "Look again.")
    line = Path(__file__).read_text().splitlines()[warning.lineno - 1]
    assert warning.filename == __file__ and line.strip() == "function_of_ours()"


def test_a_reader_that_went_away_is_left_to_the_door() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        terminal(file=Gone()).print("hello")


def test_the_log_is_one_printable_line_per_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logging.getLogger("macs.core.some_module")
    monkeypatch.setenv(VERBOSE, "1")
    show_log()
    show_log()  # does not print everything twice
    try:
        log.debug("read %s", "a\x1b[2J\nb [bold]" + "x" * 300)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith(" macs.core.some_module: read a\\x1b[2J\\x0ab [bold]" + "x" * 300)
        with timed(log, "waiting"):
            pass
        assert capsys.readouterr().err.endswith("macs.core.some_module: waiting took 0.00 s\n")
        with pytest.raises(KeyError), timed(log, "failing"):
            raise KeyError
        assert capsys.readouterr().err == ""
    finally:
        monkeypatch.setenv(VERBOSE, "")
        show_log()
    log.debug("read a file")
    assert capsys.readouterr().err == "" and logging.getLogger("macs").propagate


def test_a_hub_that_does_not_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's own client, at an address where nobody listens."""
    http = pytest.importorskip("huggingface_hub.utils")
    logger, theirs = logging.getLogger(HUB), io.StringIO()  # its own handler may hold the stderr of an earlier test
    handler = logging.StreamHandler(theirs)

    def ask() -> int:
        with pytest.raises(Exception, match="refused|Connect"):
            http.http_backoff("HEAD", "http://127.0.0.1:9/", max_retries=2, base_wait_time=0, max_wait_time=0.01)
        return theirs.getvalue().count("thrown while requesting")

    logger.addHandler(handler)
    try:
        with one_line_about_the_hub():
            assert ask() == 0
        assert capsys.readouterr().err == "The Hugging Face hub does not answer; trying again for a minute or two.\n"
        assert ask() == 3  # as before
    finally:
        logger.removeHandler(handler)
