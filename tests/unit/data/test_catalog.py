"""Every dataset of the catalogue from files as they are distributed, and what is said when they are not there."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macs import data
from macs.core.errors import MacsError
from macs.data.catalog import catalog
from macs.data.loading import load_unseen
from macs.data.pixels import Joined, Mapped
from official import (
    images,
    python2_pickle,
    write_cifar10,
    write_cifar100,
    write_imagenet32,
    write_png,
    write_svhn,
    write_tiny_imagenet,
)

NAMES = [
    "300k",
    "cifar10",
    "cifar100",
    "imagenet32",
    "isun",
    "lsun-c",
    "places365",
    "svhn",
    "textures",
    "tiny-imagenet",
]
DIGITS = ["digits", *(f"digits-{kind}" for kind in ("8-9", "faces", "outliers", "scans", "text", "textures"))]


def test_the_catalogue_knows_what_the_benchmark_needs() -> None:
    assert data.available() == sorted(NAMES + DIGITS)


@pytest.mark.parametrize("name", sorted(NAMES + DIGITS))
def test_every_entry_says_whose_it_is_and_what_it_holds(name: str) -> None:
    entry = catalog[name]
    assert entry.name == name and entry.title and entry.licence
    assert entry.home.startswith("http") and any(char.isdigit() for char in entry.citation)
    assert entry.splits and all(split.images > 0 for split in entry.splits.values())
    assert ("test" in entry.splits) == (entry.role != "outliers" or name == "tiny-imagenet")


def test_cifar10_joins_its_five_batches(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path)
    for split, (pixels, labels) in written.items():
        read = data.load("cifar10", split, root=tmp_path)
        np.testing.assert_array_equal(read.pixels[:], pixels)
        assert read.labels.tolist() == labels
        assert read.classes[0] == "airplane" and read.classes[9] == "truck" and read.mirror


def test_cifar100_reads_fine_labels_and_a_split_that_is_alone(tmp_path: Path) -> None:
    write_cifar100(tmp_path, splits=["test"])
    read = data.load("cifar100", "test", root=tmp_path)
    assert read.labels.tolist() == [0, 99, 5] and read.classes[99] == "class 99"
    with pytest.raises(MacsError, match=rf"train split of cifar100 is not in {tmp_path}: there is no .*python/train"):
        data.load("cifar100", "train", root=tmp_path)


@pytest.mark.parametrize("folder", ["svhn", "SVHN", "."])
def test_svhn_is_found_where_people_keep_it(tmp_path: Path, folder: str) -> None:
    write_svhn(tmp_path / folder / "test_32x32.mat", images(2), [10, 9])
    read = data.load("svhn", root=tmp_path)
    assert read.labels.tolist() == [0, 9] and read.classes == tuple("0123456789") and not read.mirror


@pytest.mark.parametrize("folder", ["imagenet32", "Imagenet32_train"])
def test_imagenet32_stays_in_ten_parts_and_counts_from_0(tmp_path: Path, folder: str) -> None:
    write_imagenet32(tmp_path / folder)
    train = data.load("imagenet32", "train", root=tmp_path)
    assert isinstance(train.pixels, Joined) and len(train.pixels.parts) == 10
    expected = np.concatenate([images(3, number) for number in range(1, 11)])
    np.testing.assert_array_equal(train.pixels[np.array([29, 0, 13])], expected[[29, 0, 13]])
    assert train.labels[:6].tolist() == [0, 999, 0, 0, 999, 1] and len(train.classes) == 1000


def test_imagenet32_tests_on_its_validation_set(tmp_path: Path) -> None:
    write_imagenet32(tmp_path / "imagenet32")
    np.testing.assert_array_equal(data.load("imagenet32", "test", root=tmp_path).pixels[:], images(3, 11))


def test_300k_is_read_from_disk_as_it_is_used(tmp_path: Path) -> None:
    np.save(tmp_path / "300K_random_images.npy", images(7))
    read = data.load("300k", "train", root=tmp_path)
    assert isinstance(read.pixels, Mapped) and len(read) == 7 and read.labels is None


def test_tiny_imagenet_labels_train_by_folder_and_val_by_its_table(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    train, val, test = (data.load("tiny-imagenet", split, root=tmp_path) for split in ("train", "val", "test"))
    assert train.classes == val.classes == ("n01", "n02")
    assert train.labels.tolist() == [0, 0, 1] and train.size == 32
    assert dict(zip(val.files, val.labels.tolist(), strict=True)) == {"val_0.JPEG": 1, "val_1.JPEG": 0}
    assert test.labels is None and len(test) == 1


def test_tiny_imagenet_misses_a_line_of_its_table(tmp_path: Path) -> None:
    write_tiny_imagenet(tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\n")
    with pytest.raises(MacsError, match=r"val_annotations\.txt.*no line for val_1\.JPEG"):
        data.load("tiny-imagenet", "val", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "files", "classes"),
    [
        ("textures", ["dtd/images/banded/banded_1.jpg", "dtd/images/woven/woven_1.jpg"], ("banded", "woven")),
        ("places365", ["places365/a_abbey/1.png", "places365/z_zoo/1.png"], ("a_abbey", "z_zoo")),
        ("places365", ["places365/val_256/Places365_val_00000001.jpg", "places365/val_256/2.jpg"], ()),
        ("lsun-c", ["LSUN/1.png", "LSUN/2.png"], ()),
        ("lsun-c", ["LSUN/test/1.png", "LSUN/test/2.png"], ()),
        ("lsun-c", ["LSUN_C/test/1.png", "LSUN_C/test/2.png"], ()),
        ("isun", ["iSUN/iSUN_patches/1.jpeg", "iSUN/iSUN_patches/2.jpeg"], ()),
        ("isun", ["iSUN/1.jpeg", "iSUN/2.jpeg"], ()),
    ],
)
def test_folders_are_read_in_the_layouts_in_which_they_are_found(
    tmp_path: Path, name: str, files: list[str], classes: tuple[Any, ...]
) -> None:
    for i, file in enumerate(files):
        write_png(tmp_path / file, images(1, i, size=40)[0])
    read = data.load(name, root=tmp_path)
    assert len(read) == 2 and read.classes == classes and read.size == 32 and read.name == name


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_dataset_names_its_files_and_the_folder_in_one_sentence(tmp_path: Path, name: str) -> None:
    entry = catalog[name]
    for split in entry.splits:
        with pytest.raises(MacsError) as caught:
            data.load(name, split, root=tmp_path)
        sentence = str(caught.value)
        assert str(tmp_path) in sentence and entry.splits[split].layouts[0][0] in sentence and entry.home in sentence
        assert sentence.endswith(".") and ". " not in sentence


def test_of_an_incomplete_dataset_only_what_is_missing_is_named(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(MacsError, match=r"there is no cifar-10-batches-py/data_batch_4 \(or"):
        data.load("cifar10", "train", root=tmp_path)
    assert len(data.load("cifar10", "test", root=tmp_path)) == 4


def test_a_damaged_batch_names_its_file(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes()[:5000])
    with pytest.raises(MacsError, match="data_batch_3"):
        data.load("cifar10", "train", root=tmp_path)
    (tmp_path / "cifar-10-batches-py" / "batches.meta").write_bytes(python2_pickle({"num_vis": 1}))
    with pytest.raises(MacsError, match=r"batches\.meta.*no label_names"):
        data.load("cifar10", "test", root=tmp_path)


def test_a_dataset_comes_at_the_size_asked_for(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    read = data.load("cifar10", root=tmp_path, size=48)
    assert read.size == 48 and read.pixels[:2].shape == (2, 48, 48, 3)


def test_rows_say_what_is_found(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    write_cifar100(tmp_path, splits=["test"])
    found = {row.name: row for row in data.catalog_rows(tmp_path)}
    assert found["cifar10"].found == ("train", "test") and found["cifar100"].found == ("test",)
    assert found["svhn"].found == () and found["svhn"].images == {"train": 73257, "test": 26032}
    assert found["digits"].found == ("train", "val", "test")
    assert (found["300k"].role, found["isun"].role, found["cifar10"].role) == ("outliers", "ood", "id")


def test_the_root_is_the_argument_then_the_variable_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MACS_DATA", str(tmp_path / "variable"))
    assert data.root(tmp_path / "argument") == tmp_path / "argument"
    assert data.root() == tmp_path / "variable"
    monkeypatch.delenv("MACS_DATA")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data.root() == tmp_path / "cache" / "macs"
    monkeypatch.setenv("HOME", str(tmp_path))
    for named in ("", "relative"):  # the specification says to ignore relative paths
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert data.root() == tmp_path / ".cache" / "macs"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data.root() == tmp_path / "Library" / "Caches" / "macs"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data.root() == tmp_path / "local" / "macs" / "macs" / "Cache"


def test_load_reads_from_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path)
    monkeypatch.setenv("MACS_DATA", str(tmp_path))
    assert len(data.load("cifar10", "train")) == 20


def test_a_path_to_an_array_or_a_folder_is_a_set(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", images(5))
    array = data.load(str(tmp_path / "mine.npy"), "train")
    assert len(array) == 5 and isinstance(array.pixels, Mapped)
    assert data.load(tmp_path / "mine.npy", size=16).pixels[:].shape == (5, 16, 16, 3)
    write_png(tmp_path / "folder" / "a" / "1.png", images(1)[0])
    folder = data.load(str(tmp_path / "folder"))
    assert folder.classes == ("a",) and len(data.load(folder.name)) == 1  # its name loads it again


def test_train_and_test_images_of_a_divided_folder_never_mix(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/1.png", "test/cat/1.png"):
        write_png(tmp_path / "pets" / name, images(1)[0])
    assert data.load(tmp_path / "pets", "train").classes == ("cat", "dog")
    assert data.load(tmp_path / "pets", "test").files == ("cat/1.png",)
    with pytest.raises(MacsError, match="divided into train, test and has no val"):
        data.load(tmp_path / "pets", "val")


def test_what_to_calibrate_on_is_the_validation_part_or_else_the_test_part(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    for part, count in (("val", 2), ("test", 3)):
        for index, image in enumerate(images(count)):
            write_png(tmp_path / "divided" / part / f"{index}.png", image)
    loaded = [load_unseen(spec, None, tmp_path) for spec in ("digits", "cifar10", str(tmp_path / "divided"))]
    assert [each.name for each in loaded] == ["digits (val)", "cifar10 (test)", f"{tmp_path / 'divided'} (val)"]
    assert data.load(tmp_path / "divided", "val").name == str(tmp_path / "divided")  # which loads it again
    assert load_unseen(str(tmp_path / "divided" / "val")).name == str(tmp_path / "divided" / "val")
    assert len(loaded[2]) == 2 and len(load_unseen(str(tmp_path / "divided"), "test", tmp_path)) == 3


def test_a_name_wins_over_a_folder_of_that_name_and_a_path_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_png(tmp_path / "textures" / "1.png", images(1)[0])
    shutil.copytree(tmp_path / "textures", tmp_path / "root" / "dtd" / "images" / "banded")
    assert data.load("textures", root=tmp_path / "root").classes == ("banded",)
    assert data.load("./textures").classes == ()


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("cifar", "There is no dataset called 'cifar'"),
        ("nowhere/at/all", "There is no file or folder nowhere/at/all"),
        ("gone.npy", "There is no file or folder gone.npy"),
        ("no.such.module:thing", "Cannot use 'no.such.module:thing' as a dataset"),
        ("json:loads", "json:loads('test') fails: JSONDecodeError"),
    ],
)
def test_an_unknown_spec_says_what_there_is(spec: str, sentence: str) -> None:
    with pytest.raises(MacsError) as caught:
        data.load(spec)
    assert str(caught.value).startswith(sentence)
    if ":" not in spec:
        assert all(name in str(caught.value) for name in NAMES)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").touch()
    with pytest.raises(MacsError, match=r"Cannot load .*a\.zip"):
        data.load(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("", "empty"),
        (" ", "empty"),
        ("a\0b", "NUL"),
        ("~nobody-of-that-name/x", "home folder"),
        ("x" * 5000, "too long"),
        ("{}/fifo.npy", "is a FIFO"),
        ("{}/fifo", "Cannot load"),
        ("{}/loop", "symbolic links"),
        (5, "of type int"),
    ],
)
def test_a_spec_that_leads_nowhere_is_one_sentence(tmp_path: Path, spec: Any, why: str) -> None:
    for name in ("fifo", "fifo.npy"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "loop").symlink_to("loop")
    spec = spec.format(tmp_path) if isinstance(spec, str) else spec
    for door in (data.load, load_unseen):
        with pytest.raises(MacsError, match=why):
            door(spec)
    with pytest.raises(MacsError):
        data.ImageSet.from_folder(spec)


@pytest.mark.parametrize("locked", [".", "val", "images.npy"])
def test_what_may_not_be_read_is_not_said_to_be_missing(unprivileged: Path, locked: str) -> None:
    write_png(unprivileged / "val" / "1.png", images(1)[0])
    np.save(unprivileged / "images.npy", images(1))
    (unprivileged / locked).chmod(0)
    for spec in (unprivileged, unprivileged / "val", unprivileged / "images.npy"):
        if locked in (".", spec.name):
            with pytest.raises(MacsError, match="Permission denied"):
                data.load(spec, "val")


def test_a_folder_knows_three_splits(tmp_path: Path) -> None:
    write_png(tmp_path / "1.png", images(1)[0])
    with pytest.raises(MacsError, match="no split called 'tset' \\(did you mean 'test'"):
        data.load(tmp_path, "tset")


def test_an_unknown_split_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(MacsError, match="textures has no split 'train'; it has test"):
        data.load("textures", "train", root=tmp_path)


def test_a_dataset_of_ones_own_is_one_decorated_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_plankton.py").write_text(
        "from macs.data import ImageSet\n"
        "from macs.data.catalog import Split, dataset, under\n"
        "from macs.data.readers import read_npy\n"
        "@dataset('plankton', title='Plankton', role='ood', splits={'test': Split(3, under('.', 'plankton.npy'))},\n"
        "         home='http://example.org', licence='CC0', citation='Us, 2024')\n"
        "def plankton(source):\n"
        "    return ImageSet('plankton', read_npy(source.files[0]))\n"
    )
    np.save(tmp_path / "plankton.npy", images(3))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalog, "_entries", dict(catalog._entries))
    monkeypatch.syspath_prepend(tmp_path)
    read = data.load("my_plankton:plankton", root=tmp_path)
    assert len(read) == 3 and read.name == "my_plankton:plankton"
