"""The benchmark that comes with other packages: complete, deterministic, and never training on what it tests."""

import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from macs import data
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.catalog import catalog

skimage = pytest.importorskip("skimage")
sklearn_datasets = pytest.importorskip("sklearn.datasets")

SETS = [(name, split) for name in data.available() if name.startswith("digits") for split in catalog[name].splits]
OOD = ["digits-8-9", "digits-textures", "digits-faces", "digits-text", "digits-scans"]


def photographs(images: ImageSet) -> set[str]:
    return {file.split("@")[0] for file in images.files}


@pytest.mark.parametrize(("name", "split"), SETS)
def test_every_set_is_complete_and_the_same_every_time(name: str, split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*arguments: object) -> None:
        raise AssertionError("the benchmark must not need a network")

    monkeypatch.setattr(socket, "socket", no_network)
    one, other = (data.load(name, split, root="/nowhere") for _ in range(2))
    assert len(one) == catalog[name].splits[split].images
    assert one.pixels.shape[1:] == (32, 32, 3) and one.pixels[:].dtype == np.uint8
    np.testing.assert_array_equal(one.pixels[:], other.pixels[:])


def test_the_splits_of_the_digits_are_stratified_and_do_not_overlap() -> None:
    parts = [data.load("digits", split) for split in ("train", "val", "test")]
    raw = sklearn_datasets.load_digits()
    counts = np.stack([np.bincount(part.labels, minlength=8) for part in parts])
    assert counts.sum(axis=0).tolist() == np.bincount(raw.target)[:8].tolist()
    np.testing.assert_allclose(counts / counts.sum(axis=0), [[0.7] * 8, [0.1] * 8, [0.2] * 8], atol=0.01)
    seen = [image.tobytes() for part in parts for image in part.pixels[:]]
    assert len(set(seen)) == len({image.tobytes() for image in raw.images[raw.target < 8]}) == len(seen)


def test_a_digit_is_still_the_digit_that_it_was() -> None:
    """Averaged over 4 x 4 blocks, each is most like the very image of scikit-learn that it was made from."""
    raw = sklearn_datasets.load_digits()
    eights = data.load("digits-8-9")
    small = eights.pixels[:][..., 0].reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)).reshape(-1, 64)
    likeness = np.corrcoef(small, raw.data)[: len(small), len(small) :]
    assert likeness.argmax(axis=1).tolist() == np.flatnonzero(raw.target > 7).tolist()
    assert likeness.max(axis=1).min() > 0.95
    assert (eights.labels == raw.target[raw.target > 7] - 8).all()
    assert (eights.pixels[:][..., 0] == eights.pixels[:][..., 2]).all()


def test_no_photograph_serves_twice() -> None:
    train, val = (photographs(data.load("digits-outliers", split)) for split in ("train", "val"))
    tests = [photographs(data.load(name)) for name in OOD]
    used = [train, val, *(test for test in tests if test)]
    assert len(used) == 5 and all(used)
    assert len(set.union(*used)) == sum(len(names) for names in used)
    left, right = "motorcycle_left", "motorcycle_right"  # two views of one scene
    assert not {left, right} <= set.union(*used)


def test_patches_are_cut_where_their_names_say() -> None:
    folder = Path(skimage.__file__).parent / "data"
    patches = data.load("digits-textures")
    full = [i for i, file in enumerate(patches.files) if file.endswith(",32")]
    assert len(full) > 50
    for i in full:
        photograph, place = patches.files[i].split("@")
        left, top, edge = map(int, place.split(","))
        whole = np.asarray(Image.open(folder / f"{photograph}.png"))
        np.testing.assert_array_equal(patches.pixels[:][i, ..., 1], whole[top : top + edge, left : left + edge])


def test_outliers_come_in_colour_and_in_grey_at_several_scales() -> None:
    outliers = data.load("digits-outliers", "train")
    pixels = outliers.pixels[:].astype(int)
    grey = (pixels[..., 0] == pixels[..., 2]).all(axis=(1, 2))
    assert 0.5 < grey.mean() < 0.8  # half of all, and those of the photographs that are grey themselves
    assert len({file.rsplit(",")[-1] for file in outliers.files}) >= 4
    assert len(np.unique(pixels.reshape(len(pixels), -1), axis=0)) > 0.95 * len(pixels)


def test_mirroring_is_off_where_it_would_change_the_meaning() -> None:
    assert not data.load("digits", "val").mirror and not data.load("digits-text").mirror
    assert data.load("digits-outliers", "val").mirror


def test_without_the_packages_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("macs.data.catalog.find_spec", lambda name: None)
    with pytest.raises(MacsError, match=r"pip install 'macs-ood\[demo\]'"):
        data.load("digits", "train")
    assert {row.name: row.found for row in data.catalog_rows("/nowhere")}["digits"] == ()
