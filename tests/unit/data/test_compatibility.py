"""Are a network and images fit for each other?"""

import warnings
from pathlib import Path

import pytest

from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet, load
from macs.data.compatibility import refuse_seen, warn_of_trained_outliers
from macs.data.loading import load_unseen
from official import images, write_png


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i, name in enumerate(("train/a/1", "train/a/2", "val/a/1", "val/a/3")):
        write_png(tmp_path / "photos" / f"{name}.png", images(1, seed=i, size=8)[0])
    return tmp_path / "photos"


def test_images_that_a_network_was_trained_on_are_refused(photos: Path) -> None:
    for seen in (load(photos, "train"), load(photos / "train"), load_unseen(str(photos), "train")):
        for part in (seen, seen.subset([0])):
            with pytest.raises(MacsError, match=r"trained on images of .*train; give other ID images"):
                refuse_seen(part, str(photos))
    refuse_seen(load_unseen(str(photos)), str(photos))
    refuse_seen(load_unseen("digits"), "digits")
    refuse_seen(load_unseen(str(photos)), str(photos.parent / "gone"))
    refuse_seen(ImageSet.from_array(images(2)), str(photos))


def test_copies_of_training_images_are_pointed_out(photos: Path) -> None:
    (photos / "val/a/1.png").write_bytes((photos / "train/a/1.png").read_bytes())
    with pytest.warns(MacsWarning, match=r"1 of the 2 images of .*val, such as a/1.png, are also in .*train"):
        refuse_seen(load(photos, "val"), str(photos))
    (photos / "val/a/3.png").unlink()
    with pytest.raises(MacsError, match=r"The images of .*val are those of .*train"):
        refuse_seen(load(photos, "val"), str(photos))


def warned(sets: dict[str, ImageSet], outliers: ImageSet) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        names = warn_of_trained_outliers(sets, outliers.spec)
    assert len(names) == len(caught)
    return [str(each.message) for each in caught]


def test_ood_sets_that_hold_the_outliers_of_the_training_are_pointed_out(photos: Path, tmp_path: Path) -> None:
    outliers = load(photos / "train", labelled=False)
    (all_of_them,) = warned({"x": load(photos / "train", labelled=False), "y": load(photos / "val")}, outliers)
    assert all_of_them.startswith("All images of the OOD set x are outliers that the network was trained with, so")
    (copied,) = warned({"copy": ImageSet.from_array(outliers.pixels[:])}, outliers)
    assert copied.startswith("All images of the OOD set copy")
    (inside,) = warned({"inside": load(photos / "train" / "a", labelled=False)}, outliers)
    assert inside.startswith("All images of the OOD set inside")
    (outside,) = warned({"outside": load(photos, "", labelled=False)}, outliers)
    assert outside.startswith("2 of the 4 images of the OOD set outside")
    (part,) = warned({"whole": load(photos / "train", labelled=False)}, outliers.split(1)[0])
    assert part.startswith("1 of the 2 images of the OOD set whole")
    for name, content in (("other/a/1", "train/a/1"), ("other/a/9", "val/a/3")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.png").write_bytes((photos / f"{content}.png").read_bytes())
    (some,) = warned({"other": load(tmp_path / "other", labelled=False)}, outliers)
    assert some.startswith("1 of the 2 images of the OOD set other")


def test_other_ood_sets_pass_without_a_word(photos: Path) -> None:
    outliers = load("digits-outliers", "train", labelled=False)
    assert not warned({"test": load("digits-outliers", "val", labelled=False), "mine": load(photos, "val")}, outliers)
    in_memory = ImageSet.from_array(images(3, seed=9, size=8))
    assert not warned({"mine": load(photos, "val"), "memory": ImageSet.from_array(images(3, size=8))}, in_memory)
