"""Place: what a name or a path means, and which of its images a network has not seen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macs.core.errors import MacsError
from macs.data.loading import Place, load
from official import images, write_png


@pytest.fixture
def places(tmp_path: Path) -> Path:
    for name in ("divided/train/a/1", "divided/val/a/2", "tested/train/a/1", "tested/test/a/2", "plain/a/1"):
        write_png(tmp_path / f"{name}.png", images(1, size=8)[0])
    np.save(tmp_path / "images.npy", images(2, size=8))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kind", "splits", "unseen", "undivided"),
    [
        ("divided", "folder", ["train", "val"], "val", False),
        ("tested", "folder", ["train", "test"], "test", False),
        ("plain", "folder", [], "test", True),
        ("images.npy", "file", [], "test", False),
        ("gone", None, [], "test", False),
    ],
)
def test_folders_and_files(
    places: Path, name: str, kind: str | None, splits: list[Any], unseen: str, undivided: bool
) -> None:
    for spec in (places / name, str(places / name)):
        place = Place(spec)
        assert (place.kind, place.splits, place.unseen, place.undivided) == (kind, splits, unseen, undivided)


def test_a_name_of_the_catalogue_is_no_folder(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(places)
    (places / "cifar10").mkdir()
    place = Place("cifar10")
    assert (place.kind, place.splits, place.unseen, place.undivided) == ("dataset", ["train", "test"], "test", False)
    assert Place("digits").unseen == "val" and Place("./cifar10").kind == "folder"
    assert Place("macs.data.catalog.digits:digits").splits == ["train", "val", "test"]
    with pytest.raises(MacsError, match="pathlib:Path is not a dataset"):
        load("pathlib:Path")


def test_the_folder_of_a_split(places: Path) -> None:
    assert Place(places / "divided").folder("val") == places / "divided" / "val"
    assert Place(places / "divided").folder("") == places / "divided"
    assert Place(places / "plain").folder("val") == places / "plain"
    with pytest.raises(MacsError, match="divided into train, val and has no test; name one of these"):
        Place(places / "divided").folder("test")


def test_an_empty_split_takes_a_folder_as_it_is(places: Path) -> None:
    assert load(places / "divided", "", size=8).classes == ("train", "val")
    assert load(places / "divided", "val", size=8).classes == ("a",)
