"""Datasets of torch and torchvision as image sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, Subset, TensorDataset

from macs.core.errors import MacsError
from macs.data import ImageSet, load
from official import images


class Pets(Dataset[Any]):
    """Like a dataset of torchvision: pictures and labels, `targets`, `classes`, `transform`, `target_transform`."""

    classes: Any = ("cat", "dog", "cow")

    def __init__(self, count: int = 9, transform: Callable[[Any], Any] = lambda image: image) -> None:
        self.pixels, self.transform = images(count, size=8), transform
        self.targets: list[Any] = [i % 3 for i in range(count)]
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, i: int) -> Any:
        self.read.append(i)
        return self.transform(Image.fromarray(self.pixels[i])), self.targets[i]


@pytest.mark.parametrize(
    "transform",
    [
        lambda image: image,
        np.asarray,
        lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1),
        lambda image: torch.from_numpy(np.array(image)),
        lambda image: np.asarray(image).transpose(2, 0, 1),
    ],
    ids=["PIL", "array", "tensor", "tensor, channels last", "array, channels first"],
)
def test_pictures_arrays_and_tensors(transform: Callable[[Any], Any]) -> None:
    pets = Pets(transform=transform)
    read = ImageSet.from_dataset(pets, size=8)
    np.testing.assert_array_equal(read.pixels[:], pets.pixels)
    assert read.labels.tolist() == pets.targets and read.classes == Pets.classes and read.name == "Pets"


@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (5, 7, 1)])
def test_grey_pixels(shape: tuple[int, ...]) -> None:
    grey = np.arange(35, dtype=np.uint8)
    read = ImageSet.from_dataset([grey.reshape(shape), torch.from_numpy(grey.reshape(shape))], size=5)
    expected = np.asarray(Image.fromarray(grey.reshape(5, 7)).crop((1, 0, 6, 5)).convert("RGB"))
    assert read.labels is None and read.classes == ()
    for pixels in read.pixels[:]:
        np.testing.assert_array_equal(pixels, expected)


def test_a_picture_of_another_size_is_prepared_like_one_from_a_folder(tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    np.testing.assert_array_equal(ImageSet.from_dataset([picture]).pixels[:], ImageSet.from_folder(tmp_path).pixels[:])


def test_many_images_are_read_as_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.data.pixels.EAGER_BYTES", 0)
    pets = Pets(300)
    lazy = ImageSet.from_dataset(pets, size=8)
    assert len(pets.read) < 20  # the labels come from `targets`
    np.testing.assert_array_equal(lazy.pixels[np.array([7, 250, 7])], pets.pixels[[7, 250, 7]])


def test_labels_that_are_not_listed_are_read_from_the_items() -> None:
    pets = Pets()
    pets.targets = [torch.tensor(i % 3) for i in range(9)]  # 0-dimensional tensors
    assert ImageSet.from_dataset(pets).labels.tolist() == [0, 1, 2] * 3
    tensors = TensorDataset(torch.from_numpy(pets.pixels).permute(0, 3, 1, 2), torch.tensor([1, 0, 1] * 3))
    read = ImageSet.from_dataset(tensors, size=8)
    assert read.labels.tolist() == [1, 0, 1] * 3 and read.classes == ("0", "1")
    np.testing.assert_array_equal(read.pixels[:], pets.pixels)


def test_a_list_of_labels_that_the_items_contradict_is_not_used() -> None:
    class Shifted(Pets):
        def __getitem__(self, i: int) -> Any:  # like a target_transform
            image, label = super().__getitem__(i)
            return image, (label + 1) % 3

    assert ImageSet.from_dataset(Shifted()).labels.tolist() == [1, 2, 0] * 3


def test_a_subset_has_the_labels_and_classes_of_its_dataset() -> None:
    pets = Pets()
    read = ImageSet.from_dataset(Subset(Subset(pets, [8, 5, 3]), [2, 0]), size=8)
    assert read.labels.tolist() == [0, 2] and read.classes == Pets.classes
    np.testing.assert_array_equal(read.pixels[:], pets.pixels[[3, 8]])


def test_names_of_classes_are_joined_and_told_apart_like_those_of_imagenet() -> None:
    pets = Pets()
    pets.classes = [("tabby", "tabby cat"), ("crane",), ("crane",)]
    assert ImageSet.from_dataset(pets).classes == ("tabby, tabby cat", "crane", "crane (2)")
    assert ImageSet.from_dataset(pets, classes=("a", "b", "c")).classes == ("a", "b", "c")


def failing(image: Any) -> Any:
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Pets(transform=lambda image: torch.rand(3, 8, 8)), "pixels of torch.float32; leave out .* ToTensor and Norm"),
        (Pets(transform=lambda image: np.zeros((8, 8, 3))), "pixels of float64; leave out transforms"),
        (Pets(transform=lambda image: Image.fromarray(images(1, int(torch.randint(10**6, ())))[0])), "random transfor"),
        (Pets(transform=lambda image: "a.jpg"), "item 0 of Pets is a str; give a PIL image, or a uint8"),
        (Pets(transform=lambda image: np.zeros((2, 3, 4, 5), np.uint8)), "Cannot read item 0 of Pets"),
        (Pets(transform=lambda image: Image.new("F", (8, 8))), "Cannot read item 0 of Pets: .* unknown range"),
        (Pets(transform=failing), "Pets fails at item 0: KeyError: 'gone'"),
        ([{"image": 1}], "list gives dictionaries"),
        ([(Image.new("RGB", (8, 8)), "cat")], "Item 0 of list has the label 'cat'; labels must be class numbers"),
        ([(Image.new("RGB", (8, 8)), torch.tensor([0, 1]))], r"the label tensor\(\[0, 1\]\); labels must be class"),
        ([(Image.new("RGB", (8, 8)), 0), (Image.new("RGB", (8, 8)), None)], "Item 1 of list has no label, but others"),
        ([], "list holds no images"),
        (5, "int is not a dataset: a int does not have len"),
        (Pets, "type is not a dataset: Pets does not have len"),
    ],
)
def test_what_cannot_be_images_is_refused(dataset: Any, why: str) -> None:
    with pytest.raises(MacsError, match=why):
        ImageSet.from_dataset(dataset)


def test_a_dataset_is_in_memory_unless_it_says_where_it_is_from() -> None:
    with pytest.raises(MacsError, match="9 images were made in memory"):
        ImageSet.from_dataset(Pets()).spec.load()
    digits = load("digits", "val")
    items = list(zip((Image.fromarray(pixels) for pixels in digits.pixels[:]), digits.labels.tolist(), strict=True))
    same = ImageSet.from_dataset(items, classes=digits.classes, mirror=False, source="digits")
    assert same.spec.fingerprint == digits.spec.fingerprint and same.spec.source == "digits"
