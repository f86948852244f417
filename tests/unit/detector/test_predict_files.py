"""Files of every kind to rows: none stops the others, and however many there are, memory stays as it is."""

import os
import threading
import tracemalloc
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from macs.core.errors import MacsError
from macs.data.image_files import Item
from macs.data.preparation import Preparation
from macs.detector import Detector, base
from tiny import noise, stripes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("files")
    for i, pixels in enumerate(stripes(5, seed=1).pixels[:]):
        Image.fromarray(pixels).save(tmp_path / f"a{i}.png")
    whole = (tmp_path / "a0.png").read_bytes()
    (tmp_path / "b-truncated.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c-zero.jpg").touch()
    (tmp_path / "d-text.png").write_text("not an image")
    Image.new("1", (14_000, 14_000)).save(tmp_path / "e-bomb.png")
    Image.new("RGB", (1, 1)).save(tmp_path / "f-one.png")
    Image.new("CMYK", (40, 30)).save(tmp_path / "g-cmyk.jpg")
    Image.new("I;16", (40, 30), 9000).save(tmp_path / "h-deep.png")
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "i-animated.gif", save_all=True, append_images=frames[1:])
    return tmp_path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_every_file_gets_a_row_and_broken_ones_a_reason(detector: Detector, files: Path) -> None:
    rows = {Path(row.path).name: row for row in detector.predict_files([files])}
    assert list(rows) == sorted(path.name for path in files.iterdir())
    failed = {name for name, row in rows.items() if row.is_ood is None}
    assert failed == {"b-truncated.png", "c-zero.jpg", "d-text.png", "e-bomb.png"}
    for name in failed:
        assert name in rows[name].reason and rows[name].index is rows[name].confidence is None
    assert all(row.reason == "" for name, row in rows.items() if name not in failed)


def test_rows_are_what_predict_says_of_the_same_images(detector: Detector, tmp_path: Path) -> None:
    images = noise(300, seed=2)  # more than a batch
    for i, pixels in enumerate(images.pixels[:]):
        Image.fromarray(pixels).save(tmp_path / f"{i:03}.png")
    rows = list(detector.predict_files([tmp_path]))
    expected = detector.predict(images)
    assert [row.index for row in rows] == expected.index.tolist()
    assert [row.class_ for row in rows] == expected.class_
    np.testing.assert_allclose(np.array([row.confidence for row in rows]), expected.confidence, rtol=1e-5)
    near = np.abs(expected.confidence - detector.thresholds()) < 1e-5
    assert ((np.array([row.is_ood for row in rows]) == expected.is_ood) | near).all()


def test_confidences_are_written_with_the_digits_of_a_float32(detector: Detector, files: Path) -> None:
    (row,) = detector.predict_files([files / "a0.png"])
    assert row.confidence is not None and len(str(row.confidence)) <= 12
    assert np.float32(row.confidence) == detector.predict(np.asarray(Image.open(files / "a0.png"))).confidence[0]


def test_the_threshold_can_be_overridden(detector: Detector, files: Path) -> None:
    paths = sorted(files.glob("a*.png"))
    assert all(row.is_ood for row in detector.predict_files(paths, threshold=2))
    assert not any(row.is_ood for row in detector.predict_files(paths, threshold=-1))
    with pytest.raises(MacsError, match="must be a number"):
        detector.predict_files(paths, threshold=float("inf"))


def test_nothing_is_lost_where_whole_batches_cannot_be_read(dots: Detector, tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(600)]
    Image.new("RGB", (16, 16)).save(paths[599])
    rows = list(dots.predict_files(paths))
    assert [row.path for row in rows] == [str(path) for path in paths]
    assert [row.is_ood is None for row in rows] == [True] * 599 + [False]


def test_stopping_early_ends_the_threads(dots: Detector, files: Path) -> None:
    before = threading.active_count()
    rows = dots.predict_files([files])
    next(rows)
    assert isinstance(rows, Generator)
    rows.close()
    assert threading.active_count() == before


def test_ten_times_the_images_take_no_more_memory(dots: Detector, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 64 x 64 pixels the larger number of images would take 49 MB if they were kept."""
    random = np.random.default_rng(0)

    def read(preparation: Preparation) -> np.ndarray:
        if random.random() < 0.01:
            raise MacsError("broken")
        return np.zeros((preparation.size, preparation.size, 3), np.uint8)

    def peak(count: int) -> int:
        monkeypatch.setattr(base, "find_images", lambda paths: (Item(str(i), read) for i in range(count)))
        tracemalloc.start()
        assert sum(1 for _ in dots.predict_files([])) == count
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    object.__setattr__(dots, "preparation", Preparation(64))
    peak(600)  # the first use of anything allocates what stays
    assert peak(4000) < 1.25 * peak(1000)


def test_a_single_path_gives_the_rows_of_that_path(dots: Detector, files: Path) -> None:
    for path in (files / "a1.png", str(files / "a1.png")):
        assert [row.path for row in dots.predict_files(path)] == [str(files / "a1.png")]
    with pytest.raises(MacsError, match="a list of paths, not a int"):
        dots.predict_files(cast(Any, 5))


def test_what_cannot_be_read_at_all_is_a_row_with_a_reason(dots: Detector, files: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.png")
    rows = list(dots.predict_files([tmp_path / "fifo.png", "/dev/zero", "a\0b", "", files / "a1.png"]))
    assert [row.is_ood is None for row in rows] == [True] * 4 + [False]
    assert [reason in row.reason for reason, row in zip(("FIFO", "device", "NUL", "empty", ""), rows, strict=True)]
