"""Folders of images, eager and lazy."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from macs.core.errors import MacsError, MacsWarning
from macs.data import DataSpec, ImageSet, load
from macs.data.pixels import PicturePixels
from official import images, write_png


@pytest.fixture
def pets(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Three classes, one of them nested, among files that are no images."""
    pixels = images(6)
    names = ["dog/b.png", "cat/10.png", "cat/2.png", "dog/a.PNG", "bird/wild/x.png", "bird/y.png"]
    for name, image in zip(names, pixels, strict=True):
        write_png(tmp_path / name, image)
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    (tmp_path / "cat" / "._2.png").write_bytes(b"left by another system")
    (tmp_path / ".cache").mkdir()
    write_png(tmp_path / ".cache" / "z.png", pixels[0])
    return tmp_path, dict(zip(names, pixels, strict=True))


def test_images_come_sorted_and_labelled_by_their_first_folder(pets: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, pixels = pets
    read = ImageSet.from_folder(path)
    assert read.files == ("bird/wild/x.png", "bird/y.png", "cat/10.png", "cat/2.png", "dog/a.PNG", "dog/b.png")
    assert read.classes == ("bird", "cat", "dog") and read.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(read.pixels[:], np.stack([pixels[name] for name in read.files]))
    assert read.name == path.name and read.name_of(4) == "dog/a.PNG"


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for i, image in enumerate(images(3)):
        write_png(tmp_path / f"{i}.png", image)
    flat = ImageSet.from_folder(tmp_path)
    assert flat.labels is None and flat.classes == () and len(flat) == 3


def test_an_image_beside_the_class_folders_is_named(pets: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, pixels = pets
    write_png(path / "stray.png", pixels["dog/b.png"])
    with pytest.raises(MacsError, match=r"stray\.png lies beside the class folders"):
        ImageSet.from_folder(path)
    unlabelled = ImageSet.from_folder(path, labelled=False)
    assert unlabelled.labels is None and len(unlabelled) == 7


@pytest.mark.parametrize("link", ["up", "dog/up", "bird/wild/up", "outside"])
def test_a_link_that_leads_back_up_is_not_followed(pets: tuple[Path, dict[str, np.ndarray]], link: str) -> None:
    path, _ = pets
    (path / link).symlink_to(path.parent if link == "outside" else path, target_is_directory=True)
    read = ImageSet.from_folder(path)
    assert len(read) == 6 and read.classes == ("bird", "cat", "dog")


def test_an_empty_class_folder_is_a_class_without_images_and_nothing_to_train_on(
    pets: tuple[Path, dict[str, np.ndarray]],
) -> None:
    path, _ = pets
    (path / "cow" / "old").mkdir(parents=True)
    read = load(path, "val")
    assert read.classes == ("bird", "cat", "cow", "dog") and read.labels.tolist() == [0, 0, 1, 1, 3, 3]
    with pytest.raises(MacsError, match=r"class folder .*cow holds no images"):
        load(path, "train")
    assert len(load(path, "train", labelled=False)) == 6


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("locked", ["dog", "bird/wild", "."])
def test_a_folder_that_may_not_be_read_is_named(unprivileged: Path, locked: str, labelled: bool) -> None:
    for name in ("dog/b.png", "cat/a.png", "bird/wild/x.png"):
        write_png(unprivileged / name, images(1)[0])
    (unprivileged / locked).chmod(0)
    with pytest.raises(MacsError, match=rf"{unprivileged / locked}: Permission denied"):
        ImageSet.from_folder(unprivileged, labelled=labelled)


def test_an_image_that_may_not_be_read_is_named(unprivileged: Path) -> None:
    write_png(unprivileged / "a.png", images(1)[0])
    (unprivileged / "a.png").chmod(0)
    with pytest.raises(MacsError, match=rf"{unprivileged}/a\.png: Permission denied"):
        ImageSet.from_folder(unprivileged)


def test_a_fifo_or_a_device_among_the_images_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(MacsError, match=r"a\.png is a FIFO"):
        ImageSet.from_folder(tmp_path)
    (tmp_path / "b.png").symlink_to("/dev/zero")
    with pytest.raises(MacsError, match=r"b\.png is a device"):
        ImageSet.from_files(tmp_path / "b.png")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_utf8_are_read_and_can_be_written(tmp_path: Path) -> None:
    write_png(Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9/a.png")), images(1)[0])
    read = ImageSet.from_folder(tmp_path)
    assert read.classes == ("caf\\xe9",) and read.files == ("caf\\xe9/a.png",)


@pytest.mark.parametrize("size", [0, -1, 1025, 10**30, 32.5, "32", True, float("nan")])
def test_a_size_that_no_image_can_have_is_refused(pets: tuple[Path, dict[str, np.ndarray]], size: Any) -> None:
    path, _ = pets
    doors: list[Callable[[], ImageSet]] = [
        lambda: ImageSet.from_folder(path, size),
        lambda: ImageSet.from_files([path / "dog" / "b.png"], size),
        lambda: ImageSet.from_folder(path).resized(size),
        lambda: load(path, size=size),
        lambda: load("digits", size=size),
    ]
    for make in doors:
        with pytest.raises(MacsError, match=r"size.* must be (a whole number|at least 1 and at most 1,024), not "):
            make()


def test_labels_can_be_left_out(pets: tuple[Path, dict[str, np.ndarray]]) -> None:
    assert ImageSet.from_folder(pets[0], labelled=False).labels is None


def test_a_link_to_a_folder_is_followed(
    pets: tuple[Path, dict[str, np.ndarray]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "links").symlink_to(pets[0], target_is_directory=True)
    assert len(ImageSet.from_folder(elsewhere)) == 6


def test_lazy_pixels_equal_eager_ones(
    pets: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    eager = ImageSet.from_folder(pets[0], size=24)
    monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 6 * 24 * 24 * 3 - 1)
    lazy = ImageSet.from_folder(pets[0], size=24)
    assert isinstance(eager.pixels, PicturePixels) and eager.pixels.decoded is not None
    assert isinstance(lazy.pixels, PicturePixels) and lazy.pixels.decoded is None
    assert lazy.pixels.shape == eager.pixels.shape and lazy.labels.tolist() == eager.labels.tolist()
    for index in (slice(None), slice(1, 4), np.array([5, 0, 5, -1]), np.array([], int)):
        np.testing.assert_array_equal(lazy.pixels[index], eager.pixels[index])
    np.testing.assert_array_equal(lazy.subset([3, 1]).pixels[:], eager.pixels[np.array([3, 1])])


def test_many_images_stay_in_order_across_threads(tmp_path: Path) -> None:
    for i in range(200):
        write_png(tmp_path / f"{i:03}.png", np.full((8, 8, 3), i, np.uint8))
    heard = []
    read = ImageSet.from_folder(tmp_path, size=8, progress=lambda done, total: heard.append((done, total)))
    assert read.pixels[:][:, 0, 0, 0].tolist() == list(range(200))
    assert heard[-1] == (200, 200) and heard == sorted(heard) and len(heard) > 1


@pytest.mark.parametrize("lazy", [False, True])
def test_a_broken_image_is_named(
    pets: tuple[Path, dict[str, np.ndarray]], monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    path, _ = pets
    (path / "cat" / "2.png").write_bytes((path / "cat" / "2.png").read_bytes()[:200])
    if lazy:
        monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 0)
    with pytest.raises(MacsError, match=r"cat.2\.png"):
        ImageSet.from_folder(path).pixels[np.array([3])]


def test_a_folder_without_images_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / "empty" / "a.txt").touch()
    with pytest.raises(MacsError, match=r"The folder .*empty holds no images"):
        ImageSet.from_folder(tmp_path / "empty")
    with pytest.raises(MacsError, match=r"There is no folder .*gone"):
        ImageSet.from_folder(tmp_path / "gone")


def test_files_are_read_in_the_order_given(tmp_path: Path) -> None:
    for name, shade in (("b.png", 1), ("a.png", 2)):
        Image.new("RGB", (40, 30), (shade, shade, shade)).save(tmp_path / name)
    read = ImageSet.from_files([tmp_path / "b.png", str(tmp_path / "a.png")], size=16)
    assert read.pixels[:][:, 0, 0, 0].tolist() == [1, 2] and read.size == 16
    assert read.name_of(1) == str(tmp_path / "a.png")
    assert len(ImageSet.from_files(str(tmp_path / "a.png"))) == 1  # one path, not one for each of its letters


@pytest.fixture
def damaged(pets: tuple[Path, dict[str, np.ndarray]]) -> Path:
    """The pets, of which two files are broken in different ways."""
    path, _ = pets
    (path / "cat" / "2.png").write_bytes((path / "cat" / "2.png").read_bytes()[:200])
    (path / "dog" / "a.PNG").write_text("not an image")
    return path


@pytest.mark.parametrize("lazy", [False, True])
def test_broken_images_are_reported_once_and_skipped(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool
) -> None:
    if lazy:
        monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 0)
    with pytest.warns(MacsWarning) as warned:
        read = ImageSet.from_folder(damaged, broken="skip")
    assert read.pixels[:].shape == (4, 32, 32, 3)
    (sentence,) = [str(each.message) for each in warned]
    assert sentence.startswith(f"2 of the 6 images of {damaged} are left out.")
    assert "cat/2.png" in sentence and "dog/a.PNG" in sentence
    assert read.files == ("bird/wild/x.png", "bird/y.png", "cat/10.png", "dog/b.png")
    assert read.classes == ("bird", "cat", "dog") and read.labels.tolist() == [0, 0, 1, 2]


@pytest.mark.filterwarnings("ignore::macs.core.errors.MacsWarning")
def test_a_set_without_its_broken_images_is_loaded_again(damaged: Path) -> None:
    (damaged / "list.txt").write_text("cat/2.png 0\ncat/10.png 1\ndog/a.PNG 2\ndog/b.png 3\n")
    for name, count in ((damaged, 4), (damaged / "list.txt", 2)):
        read = load(name, broken="skip")
        assert len(read) == count and read.spec.broken == "skip"
        assert DataSpec.from_dict(read.spec.as_dict()).load().spec == read.spec
    assert read.labels.tolist() == [1, 3] and read.files == ("cat/10.png", "dog/b.png")


def test_a_set_whose_images_are_all_broken_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("not an image")
    with pytest.raises(MacsError, match=r"None of the 1 images of .* can be read: Cannot read the image .*a\.png"):
        ImageSet.from_folder(tmp_path, broken="skip")
    with pytest.raises(MacsError, match="no way to treat broken images called 'ignore'"):
        ImageSet.from_folder(tmp_path, broken="ignore")  # type: ignore[arg-type]


def test_a_class_with_a_single_image_is_pointed_out(pets: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, pixels = pets
    write_png(path / "cow" / "1.png", pixels["dog/b.png"])
    with pytest.warns(MacsWarning, match=r"class folder .*cow holds one image, from which no class can be learned\.$"):
        load(path, "train")
    write_png(path / "ewe" / "1.png", pixels["dog/b.png"])
    with pytest.warns(MacsWarning, match=r"cow holds one image.* So do 1 others\."):
        load(path, "train")
