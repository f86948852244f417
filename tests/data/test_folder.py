"""Folders of images, eager and lazy."""

import numpy as np
import pytest
from official import images, write_png
from PIL import Image

from macs.core.errors import MacsError
from macs.data import ImageSet, folder
from macs.data.folder import FolderPixels


@pytest.fixture
def pets(tmp_path):
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


def test_images_come_sorted_and_labelled_by_their_first_folder(pets):
    path, pixels = pets
    read = ImageSet.from_folder(path)
    assert read.files == ("bird/wild/x.png", "bird/y.png", "cat/10.png", "cat/2.png", "dog/a.PNG", "dog/b.png")
    assert read.classes == ("bird", "cat", "dog") and read.labels.tolist() == [0, 0, 1, 1, 2, 2]
    np.testing.assert_array_equal(read.pixels[:], np.stack([pixels[name] for name in read.files]))
    assert read.name == path.name and read.name_of(4) == "dog/a.PNG"


def test_a_flat_folder_has_no_labels(tmp_path):
    for i, image in enumerate(images(3)):
        write_png(tmp_path / f"{i}.png", image)
    flat = ImageSet.from_folder(tmp_path)
    assert flat.labels is None and flat.classes == () and len(flat) == 3


def test_one_image_outside_every_class_leaves_all_unlabelled(pets):
    path, pixels = pets
    write_png(path / "stray.png", pixels["dog/b.png"])
    assert ImageSet.from_folder(path).labels is None


def test_labels_can_be_left_out(pets):
    assert ImageSet.from_folder(pets[0], labelled=False).labels is None


def test_a_link_to_a_folder_is_followed(pets, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "links").symlink_to(pets[0], target_is_directory=True)
    assert len(ImageSet.from_folder(elsewhere)) == 6


def test_lazy_pixels_equal_eager_ones(pets, monkeypatch):
    eager = ImageSet.from_folder(pets[0], size=24)
    monkeypatch.setattr(folder, "EAGER_BYTES", 6 * 24 * 24 * 3 - 1)
    lazy = ImageSet.from_folder(pets[0], size=24)
    assert isinstance(eager.pixels, np.ndarray) and isinstance(lazy.pixels, FolderPixels)
    assert lazy.pixels.shape == eager.pixels.shape and lazy.labels.tolist() == eager.labels.tolist()
    for index in (slice(None), slice(1, 4), np.array([5, 0, 5, -1]), np.array([], int)):
        np.testing.assert_array_equal(lazy.pixels[index], eager.pixels[index])
    np.testing.assert_array_equal(lazy.subset([3, 1]).pixels[:], eager.pixels[[3, 1]])


def test_many_images_stay_in_order_across_threads(tmp_path):
    for i in range(200):
        write_png(tmp_path / f"{i:03}.png", np.full((8, 8, 3), i, np.uint8))
    heard = []
    read = ImageSet.from_folder(tmp_path, size=8, progress=lambda done, total: heard.append((done, total)))
    assert read.pixels[:, 0, 0, 0].tolist() == list(range(200))
    assert heard[-1] == (200, 200) and heard == sorted(heard) and len(heard) > 1


@pytest.mark.parametrize("lazy", [False, True])
def test_a_broken_image_is_named(pets, monkeypatch, lazy):
    path, _ = pets
    (path / "cat" / "2.png").write_bytes((path / "cat" / "2.png").read_bytes()[:200])
    if lazy:
        monkeypatch.setattr(folder, "EAGER_BYTES", 0)
    with pytest.raises(MacsError, match=r"cat.2\.png"):
        ImageSet.from_folder(path).pixels[np.array([3])]


def test_a_folder_without_images_is_named(tmp_path):
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (tmp_path / "empty" / "a.txt").touch()
    with pytest.raises(MacsError, match=r"The folder .*empty holds no images"):
        ImageSet.from_folder(tmp_path / "empty")
    with pytest.raises(MacsError, match=r"There is no folder .*gone"):
        ImageSet.from_folder(tmp_path / "gone")


def test_files_are_read_in_the_order_given(tmp_path):
    for name, shade in (("b.png", 1), ("a.png", 2)):
        Image.new("RGB", (40, 30), (shade, shade, shade)).save(tmp_path / name)
    read = ImageSet.from_files([tmp_path / "b.png", str(tmp_path / "a.png")], size=16)
    assert read.pixels[:, 0, 0, 0].tolist() == [1, 2] and read.size == 16
    assert read.name_of(1) == str(tmp_path / "a.png")
