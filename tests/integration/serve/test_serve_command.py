"""`macs serve` as a command: its mistakes get one sentence, and no torch is imported before one is made."""

from pathlib import Path

import pytest

from command import needs_torch, refused


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
