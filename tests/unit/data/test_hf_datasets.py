"""Hugging Face datasets, as the package writes them to disk."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hub_datasets import NAMES, datasets, pets, save_splits
from macs.core.errors import MacsError
from macs.data import DataSpec, ImageSet, load
from macs.data.loading import Place
from macs.data.pixels import PicturePixels
from macs.data.preparation import Preparation
from official import images


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_splits(tmp_path_factory.mktemp("hub") / "pets")


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_the_columns_are_found_by_their_types(form: str | None) -> None:
    read = ImageSet.from_hf(pets().with_format(form), size=8)
    np.testing.assert_array_equal(read.pixels[:], images(6, size=8))
    assert read.labels.tolist() == [0, 1, 2, 0, 1, 2] and read.classes == tuple(NAMES)
    assert ImageSet.from_hf(pets(), labelled=False).labels is None


@pytest.mark.parametrize("prefix", ["", "hf/"])
def test_a_folder_of_save_to_disk_and_its_splits(saved: Path, prefix: str) -> None:
    for split, seed, count in (("train", 1, 9), ("val", 2, 6), ("validation", 2, 6), ("test", 3, 6)):
        read = ImageSet.from_hf(f"{prefix}{saved}", split, size=8)
        np.testing.assert_array_equal(read.pixels[:], images(count, seed, size=8))
    with pytest.raises(MacsError, match="has the splits train, validation, test and no extra; name one of these"):
        ImageSet.from_hf(saved, "extra")


def test_a_name_on_the_command_line_is_loaded_again(saved: Path) -> None:
    name = f"hf/{saved}"
    place = Place(name)
    assert (place.kind, place.splits, place.unseen, place.undivided) == ("hf", ["train", "val", "test"], "val", False)
    for before in (load(name, "val", size=8), ImageSet.from_hf(saved, "val", size=8)):
        spec = DataSpec.from_dict(json.loads(json.dumps(before.spec.as_dict())))
        assert (spec.source, spec.split) == (name, "val")
        assert spec.load(preparation=Preparation(8)).spec == before.spec
    with pytest.raises(MacsError, match="6 images were made in memory"):
        ImageSet.from_hf(pets()).spec.load()


def test_a_set_without_splits_has_been_seen_in_full(tmp_path: Path) -> None:
    pets().save_to_disk(tmp_path / "pets")
    place = Place(f"hf/{tmp_path}/pets")
    assert place.splits == [] and place.undivided
    assert len(load(f"hf/{tmp_path}/pets", "train")) == len(load(f"hf/{tmp_path}/pets", "test")) == 6


def test_parquet_files_as_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "data").mkdir()
    for split, seed in (("train", 1), ("test", 2)):
        pets(6, seed).to_parquet(tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    name = f"hf/{tmp_path}"
    assert Place(name).splits == ["train", "test"]
    read = load(name, "test", size=8)
    np.testing.assert_array_equal(read.pixels[:], images(6, 2, size=8))
    assert read.labels.tolist() == [0, 1, 2, 0, 1, 2] and read.classes == tuple(NAMES)


def test_of_several_columns_one_has_to_be_chosen(tmp_path: Path) -> None:
    colour = (datasets.ClassLabel(names=["black", "white"]), [0, 1] * 3)
    both = pets(colour=colour)
    with pytest.raises(
        MacsError, match=r"labels in the columns animal, colour; choose one with label='animal', or hf/"
    ):
        ImageSet.from_hf(both)
    assert ImageSet.from_hf(both, label="colour").labels.tolist() == [0, 1] * 3
    both.save_to_disk(tmp_path / "both")
    read = load(f"hf/{tmp_path}/both:colour", size=8)
    assert read.classes == ("black", "white")
    assert read.spec.load(preparation=Preparation(8)).spec == read.spec
    masks = pets(mask=(datasets.Image(), [Image.new("L", (8, 8))] * 6))
    with pytest.raises(MacsError, match="images in the columns img, mask; choose one with image='img'"):
        ImageSet.from_hf(masks)
    assert ImageSet.from_hf(masks, image="img", size=8).pixels[:].tolist() == images(6, size=8).tolist()


def test_labels_that_are_numbers_hidden_or_missing() -> None:
    numbers = pets(number=(datasets.Value("int32"), [3, 1, 0] * 2))
    read = ImageSet.from_hf(numbers, label="number")
    assert read.labels.tolist() == [3, 1, 0] * 2 and read.classes == ("0", "1", "2", "3")
    hidden = datasets.ClassLabel(names=NAMES)
    assert ImageSet.from_hf(pets(animal=(hidden, [-1] * 6))).labels is None
    with pytest.raises(MacsError, match="has 5 rows without a label in the column animal"):
        ImageSet.from_hf(pets(animal=(hidden, [1] + [None] * 5)))
    with pytest.raises(MacsError, match="labels of Dataset are .*; give N whole numbers"):
        ImageSet.from_hf(pets(), label="id")
    with pytest.raises(MacsError, match="has no column called 'kind'; its columns are id, img, animal"):
        ImageSet.from_hf(pets(), label="kind")


def test_what_is_not_a_dataset_of_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="has no column of images; its columns are id, animal"):
        ImageSet.from_hf(pets().remove_columns("img"))
    with pytest.raises(MacsError, match="streamed, but images are read in any order; load it without streaming"):
        ImageSet.from_hf(pets().to_iterable_dataset())
    with pytest.raises(MacsError, match="is a int, not a Hugging Face dataset"):
        ImageSet.from_hf(5)
    with pytest.raises(MacsError, match="holds no images"):
        ImageSet.from_hf(pets(0))
    (tmp_path / "state.json").write_text("{")
    with pytest.raises(MacsError, match="Cannot load .* with the package `datasets`"):
        ImageSet.from_hf(tmp_path)


def test_a_broken_picture_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = pets(2).cast_column("img", datasets.Image(decode=False))
    broken = broken.map(lambda row: {"img": {"bytes": row["img"]["bytes"][:60], "path": None}})
    with pytest.raises(MacsError, match="Cannot read image 0 of Dataset"):
        ImageSet.from_hf(broken.cast_column("img", datasets.Image()))


def test_many_images_are_read_as_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 0)
    lazy = ImageSet.from_hf(pets(), size=8)
    assert isinstance(lazy.pixels, PicturePixels) and lazy.pixels.decoded is None
    np.testing.assert_array_equal(lazy.pixels[np.array([5, 1, 5])], images(6, size=8)[[5, 1, 5]])
