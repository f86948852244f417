"""Are a network and images fit for each other?"""

from pathlib import Path

import pytest

from macs.core.errors import MacsError, MacsWarning
from macs.data import ImageSet, load
from macs.data.fitness import refuse_seen
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
