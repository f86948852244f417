"""`macs serve` as a command: its mistakes get one sentence, and no torch is imported before one is made."""

from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.serve.middleware import key_of_clients


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
