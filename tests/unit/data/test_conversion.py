"""Images in every form become the pixels that they hold."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from macs.core.errors import MacsError
from macs.data import ImageSet, Preparation
from macs.data.conversion import parts_of, to_images, to_sets
from official import images

PIXELS = images(6, 3, size=8)
LABELS = np.array([0, 2, 1, 1, 0, 2])
FIRST = torch.from_numpy(PIXELS).permute(0, 3, 1, 2)
PICTURES = [Image.fromarray(each) for each in PIXELS]
PAIRS = list(zip(FIRST / 255, LABELS.tolist(), strict=True))
SIZE = Preparation(8)


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(PAIRS)


def loader(items: Any, **options: Any) -> Any:
    return DataLoader(items, **options)


def dicts(pairs: Any) -> dict[str, Any]:
    return {"pixel_values": torch.stack([image for image, _ in pairs]), "labels": [label for _, label in pairs]}


UNLABELLED: dict[str, Any] = {
    "array": PIXELS,
    "array, channels first": PIXELS.transpose(0, 3, 1, 2),
    "tensor": torch.from_numpy(PIXELS),
    "tensor, channels first": FIRST,
    "floats": FIRST / 255,
    "halves": (FIRST / 255).bfloat16().float().mul(255).round().div(255),
    "doubles": FIRST.double().numpy() / 255,
    "gradient": (FIRST / 255).requires_grad_(),
    "arrays": list(PIXELS),
    "tensors": tuple(FIRST / 255),
    "batches": [FIRST[:2] / 255, FIRST[2:] / 255],
    "pictures": PICTURES,
    "pictures and arrays": [*PICTURES[:3], *PIXELS[3:]],
    "loader of a list": loader(list(FIRST / 255), batch_size=4),
    "loader of pictures": loader(PICTURES, batch_size=4),
    "collated pictures": loader(PICTURES, batch_size=4, collate_fn=list),
    "loader of one tensor": loader(TensorDataset(FIRST), batch_size=5),
}
LABELLED: dict[str, Any] = {
    "pairs": PAIRS,
    "pair": (FIRST, torch.from_numpy(LABELS)),
    "loader": loader(PAIRS, batch_size=4),
    "loader of pictures": loader(list(zip(PICTURES, LABELS.tolist(), strict=True)), batch_size=4),
    "loader of tensors": loader(TensorDataset(FIRST, torch.from_numpy(LABELS)), batch_size=4),
    "iterable": loader(Streamed(), batch_size=4),
    "collated": loader(PAIRS, batch_size=4, collate_fn=list),
    "columns": loader(PAIRS, batch_size=4, collate_fn=lambda pairs: tuple(zip(*pairs, strict=True))),
    "dicts": loader(PAIRS, batch_size=4, collate_fn=dicts),
    "items that are dicts": loader([{"image": image, "label": label} for image, label in PAIRS], batch_size=4),
}


@pytest.mark.parametrize("form", sorted({*UNLABELLED, *LABELLED}))
def test_every_form_gives_the_same_pixels(form: str) -> None:
    for forms in (UNLABELLED, LABELLED):
        if form in forms:
            made = to_images(forms[form], "images", SIZE)
            if form == "halves":  # bfloat16 has 8 bits of precision
                assert np.abs(made.pixels[:].astype(int) - PIXELS).max() <= 1
            else:
                np.testing.assert_array_equal(made.pixels[:], PIXELS)
            if forms is LABELLED:
                assert made.labels is not None and made.classes == ("0", "1", "2")
                np.testing.assert_array_equal(made.labels, LABELS)
                assert to_images(forms[form], "images", SIZE, labelled=False).labels is None
            else:
                assert made.labels is None


def test_one_image_in_every_form() -> None:
    for one in (PIXELS[0], FIRST[0], FIRST[0] / 255, PICTURES[0]):
        np.testing.assert_array_equal(to_images(one, "images", SIZE).pixels[:], PIXELS[:1])


def test_a_set_stays_as_it_is_and_sets_have_names() -> None:
    known = ImageSet.from_array(PIXELS)
    assert to_images(known, "images") is known
    sets = to_sets({"a": known, "b": FIRST}, "outliers")
    assert sets["a"] is known and len(sets["b"]) == 6
    with pytest.raises(MacsError, match="The outliers must be a dict of ImageSets by name, not a Tensor"):
        to_sets(FIRST, "outliers")


def test_where_both_ends_could_be_channels_tensors_have_them_first_and_arrays_last() -> None:
    both = np.arange(2 * 3 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3, 3)
    np.testing.assert_array_equal(to_images(both, "images").pixels[:], both)
    np.testing.assert_array_equal(to_images(torch.from_numpy(both), "images").pixels[:], both.transpose(0, 2, 3, 1))


def test_images_that_are_not_square_are_prepared_as_pictures_are() -> None:
    wide = images(3, 5, size=12)[:, :9]
    expected = ImageSet.from_dataset([Image.fromarray(each) for each in wide], size=8).pixels[:]
    for form in (wide, torch.from_numpy(wide).permute(0, 3, 1, 2) / 255, [wide[0], *wide[1:]]):
        np.testing.assert_array_equal(to_images(form, "images", SIZE).pixels[:], expected)
    mixed = [wide[0], PIXELS[0]]
    np.testing.assert_array_equal(to_images(mixed, "images", SIZE).pixels[:], [expected[0], PIXELS[0]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (FIRST.float(), r"float pixels from 0 to 255, but must be in \[0, 1\]; divide them by 255, or give uint8"),
        (FIRST / 127.5 - 1, r"float pixels from -1 to 1, but must be in \[0, 1\]; leave out Normalize"),
        (torch.full((1, 3, 8, 8), torch.nan), "float pixels from nan to nan"),
        (PIXELS / 255, r"must be uint8 .*, or float pixels in \[0, 1\], N x 3 x H x W, not float64 of shape"),
        (FIRST.long(), "must be uint8 .*, not int64 of shape"),
        (FIRST[:, :1], "must be uint8 .*, not uint8 of shape"),
        (FIRST[:0], "must be uint8 .*, not uint8 of shape"),
        (PIXELS[0, 0], "must be uint8 .*, not uint8 of shape"),
        ([], "must be an ImageSet, not a list"),
        ([1, 2], "must be an ImageSet, not a list"),
        ("folder", "must be an ImageSet, not the path 'folder'; make one with macs.data.load"),
        (["a.png", "b.png"], "must be an ImageSet, not a list"),
        (None, "must be an ImageSet, not None"),
        (5, "must be an ImageSet, not a int"),
        (loader([{"x": 1}]), "a dict with the keys x; let one of them be image or pixel_values"),
        (loader(TensorDataset(FIRST, FIRST[:, 0, 0, 0] / 2)), "labels of images are float32"),
        (loader(PAIRS[:0]), "gives no batch"),
        (
            loader([torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)], batch_size=1),
            "images of 8 and 9 pixels; let all have one size",
        ),
    ],
)
def test_what_cannot_be_images_is_refused_in_one_sentence(given: Any, words: str) -> None:
    with pytest.raises(MacsError, match=f"images.*{words}|{words}") as raised:
        to_images(given, "images", SIZE)
    assert "\n" not in str(raised.value)


def test_pictures_need_a_preparation() -> None:
    forms: list[Any] = [PICTURES, PICTURES[0], loader(PICTURES)]
    for given in forms:
        with pytest.raises(MacsError, match="the network does not say how to prepare pictures"):
            to_images(given, "images")


def test_a_dataset_that_fails_is_named() -> None:
    class Broken(Streamed):
        def __iter__(self) -> Any:
            yield PAIRS[0]
            raise OSError("the disk is gone")

    with pytest.raises(MacsError, match=r"^The DataLoader of the images fails: OSError: the disk is gone\.$"):
        to_images(loader(Broken()), "images", SIZE)


def test_a_loader_may_shuffle_where_labels_go_with_images() -> None:
    for given in (PAIRS, list(zip(PICTURES, LABELS.tolist(), strict=True))):
        torch.manual_seed(1)
        made = to_images(loader(given, batch_size=4, shuffle=True), "images", SIZE)
        order = [int(np.flatnonzero((image == PIXELS).all(axis=(1, 2, 3)))[0]) for image in made.pixels[:]]
        assert sorted(order) == list(range(6)) != order and made.labels is not None
        np.testing.assert_array_equal(made.labels, LABELS[order])


def test_two_batches_are_not_images_and_labels() -> None:
    batch, labels = parts_of([FIRST, FIRST])
    assert len(batch) == 2 and labels is None
