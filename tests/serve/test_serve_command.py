"""`macs serve` as a command: its mistakes get one sentence, and no torch is imported before one is made."""

from pathlib import Path

import pytest

from command import needs_torch, refused
from macs.core.errors import MacsError
from macs.serve.gate import key_of_clients


def test_mistakes_get_one_sentence(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"hello")
    cases: dict[str, list[object]] = {
        "There is no detector at": [tmp_path / "missing.onnx"],
        "is damaged or not an ONNX file": [tmp_path / "broken.onnx"],
        "--port must be": [exported, "--port", 70000],
        "batch": [exported, "--batch", 0],
        "can never enter a queue of 1": [exported, "--queue", 1],
        "There is no key file": [exported, "--api-key-file", tmp_path / "key"],
        "no execution provider": [exported, "--provider", "cuda"],
        "threads": [exported, "--threads", 0],
        "There is no address": [exported, "--host", "no such host"],
    }
    for words, arguments in cases.items():
        port = () if "--port" in arguments else ("--port", 0)
        assert words in refused(capsys, "serve", *arguments, *port)


def test_help_and_mistakes_need_no_torch(tmp_path: Path) -> None:
    assert not needs_torch("serve", "--help")
    assert not needs_torch("serve", str(tmp_path / "missing.onnx"))


def test_a_key_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MACS_API_KEY", raising=False)
    assert key_of_clients(None) is None
    monkeypatch.setenv("MACS_API_KEY", "from outside")
    assert key_of_clients(None) == "from outside"
    (tmp_path / "key").write_text("in a file\n")
    assert key_of_clients(tmp_path / "key") == "in a file"
    (tmp_path / "key").write_text("\n")
    with pytest.raises(MacsError, match="holds no key"):
        key_of_clients(tmp_path / "key")
    monkeypatch.setenv("MACS_API_KEY", " ")
    with pytest.raises(MacsError, match=r"\$MACS_API_KEY holds no key"):
        key_of_clients(None)
