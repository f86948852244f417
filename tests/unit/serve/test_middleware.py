"""What every request passes: ids, the API key, headers, the log, and limits on memory and time."""

import json
import logging
from contextlib import nullcontext

import pytest

from macs.serve.middleware import check_host
from macs.serve.uploads import Refused


def test_what_verbose_tells_is_part_of_the_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from macs.core.console import VERBOSE, show_log
    from macs.serve.metrics import write_log

    for name in ("macs", "macs.serve", "uvicorn.error"):  # so that all is taken back
        logger = logging.getLogger(name)
        for attribute, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
            monkeypatch.setattr(logger, attribute, value)
    monkeypatch.setenv(VERBOSE, "1")
    show_log()
    write_log()
    logging.getLogger("macs.detector.runtime").debug("read %s", "d.onnx")
    entry = json.loads(capsys.readouterr().err)
    assert (entry["level"], entry["event"]) == ("debug", "read d.onnx")
    write_log()
    logging.getLogger("macs.serve").info("started")
    assert json.loads(capsys.readouterr().err)["event"] == "started"


OURS = (
    "localhost",
    "LOCALHOST:80",
    "a.localhost",
    "127.0.0.1",
    "10.0.0.7:8000",
    "[::1]:8000",
    "[::1]",
    "",
    "macs.internal:1",
)
THEIRS = ("rebound.example", "localhost.example", "127.0.0.1.example", "1.2.3", "[::1].x")


@pytest.mark.parametrize("host", [*OURS, *THEIRS])
def test_addresses_localhost_and_names_of_ours_are_hosts(host: str) -> None:
    with nullcontext() if host in OURS else pytest.raises(Refused, match="does not answer as"):
        check_host({b"host": host.encode()}, {"macs.internal"})


@pytest.mark.parametrize("origin", ["http://localhost:8000", "", "http://localhost", "https://x.example", "null"])
def test_only_pages_of_the_service_may_ask_it(origin: str) -> None:
    with nullcontext() if origin in ("http://localhost:8000", "") else pytest.raises(Refused, match="other sites"):
        check_host({b"host": b"localhost:8000", b"origin": origin.encode()}, ())
