"""Results behind a URL: what is fetched, what is put, in which order, and what is said where that fails."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from macs.core.errors import MacsError
from macs.experiments.mirrors import Mirror, to_read

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def memory() -> Iterator[Any]:
    """A store in memory with the files of two cells, one of them finished."""
    system = fsspec.filesystem("memory")
    for name in ("a/1.json", "a/1/state.pt", "a/1/net.safetensors", "a/1/confidences-msp-x.npz", "b/2/metrics.jsonl"):
        system.pipe_file(f"/results/{name}", name.encode())
    yield system
    system.rm("/results", recursive=True)


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_pull_fetches_what_is_wanted(memory: Any, tmp_path: Path) -> None:
    mirror = Mirror("memory://results/", tmp_path)
    mirror.pull(wanted=to_read)
    assert files_below(tmp_path) == ["a/1.json", "a/1/net.safetensors", "b/2/metrics.jsonl"]
    mirror.pull(tmp_path / "a", lambda name: name.startswith("1/state"))
    assert (tmp_path / "a/1/state.pt").read_bytes() == b"a/1/state.pt"
    assert mirror.named(tmp_path / "b/2/metrics.jsonl") == "memory://results/b/2/metrics.jsonl"
    mirror.pull(tmp_path / "none")
    memory.pipe_file("/results/b/2/metrics.jsonl", b"a longer record of epochs")
    mirror.pull(wanted=to_read)
    assert (tmp_path / "b/2/metrics.jsonl").read_bytes() == b"a longer record of epochs"


def test_push_puts_what_has_changed_and_the_weights_last(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[str] = []
    put_file = type(memory).put_file

    def noted(self: Any, local: str, remote: str, **more: Any) -> None:
        put.append(Path(local).relative_to(tmp_path).as_posix())
        put_file(self, local, remote, **more)

    monkeypatch.setattr(type(memory), "put_file", noted)
    mirror = Mirror("memory://results", tmp_path)
    mirror.pull()
    mirror.push()
    assert put == []
    (tmp_path / "c/3").mkdir(parents=True)
    for name in ("net.safetensors", "state.pt", ".state.pt.0123abcd.part"):
        (tmp_path / "c/3" / name).write_bytes(b"3")
    (tmp_path / "table.csv").write_bytes(b"1,2")
    mirror.push()
    assert put == ["c/3/state.pt", "table.csv", "c/3/net.safetensors"]
    assert memory.cat_file("/results/c/3/net.safetensors") == b"3"
    (tmp_path / "table.csv").write_bytes(b"1,2,3")
    mirror.push()
    assert put[3:] == ["table.csv"]


def test_a_store_that_cannot_be_used_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    (tmp_path / "here").mkdir()
    (tmp_path / "here/a").write_text("a")
    mirror = Mirror(f"file://{tmp_path}/file/results", tmp_path / "here")
    with pytest.raises(MacsError, match="Cannot write to file://.*/file/results"):
        mirror.check_writable()
    with pytest.raises(MacsError, match="Cannot write file://.*/file/results/a: "):
        mirror.push()
    with pytest.raises(MacsError, match="Cannot understand the URL nowhere://x"):
        Mirror("nowhere://x", tmp_path).pull()
