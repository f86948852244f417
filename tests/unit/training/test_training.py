"""Training: it learns, it is determined by its seed, and neither a kill nor a mistake loses anything."""

from pathlib import Path

import pytest

from macs.core.errors import MacsError
from macs.training.runs import RunFolder, run_name


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"\0", b'{"epoch": 1', b"7\n", b"[]\n", b'{"epoch": 1}\n', 5000 * b"[", b'{"epoch": 1, "x": NaN}\n'],
)
def test_damaged_metrics_get_one_sentence(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    with pytest.raises(MacsError, match="Cannot read the epochs in .*metrics.jsonl: .*[.]$"):
        RunFolder(tmp_path).epochs()


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("cifar10", "cifar10-wrn-10-1"),
        ("/", "images-wrn-10-1"),
        ("/data/photos/", "photos-wrn-10-1"),
        ("C:\\data\\photos", "photos-wrn-10-1"),
        ("/data/my photos: new", "my.photos.new-wrn-10-1"),
        ("/data/...", "wrn-10-1"),
        ("/data/📷", "📷-wrn-10-1"),
    ],
)
def test_a_run_is_named_inside_its_folder(id: str, name: str) -> None:
    assert run_name(id, "wrn-10-1") == name
    assert len(Path(run_name(id, "../wrn:x/y")).parts) == 1


def test_a_run_on_the_folder_above_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos/here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "photos/here")
    assert run_name("..", "x") == "photos-x"
    assert run_name(".", "x") == "here-x"
