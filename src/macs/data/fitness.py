"""Are a network and images fit for each other: the same classes, none of its training images, better than chance?"""

import filecmp
from collections.abc import Sequence
from pathlib import Path

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data.imageset import ImageSet
from macs.data.loading import Place
from macs.data.preparation import Preparation

SHOWN = 10  # names of classes that a message lists


def same_classes(images: ImageSet, names: Sequence[str], whose: str) -> None:
    """Refuse labelled images of other classes than `names`, or in another order.

    Where no names are known, or the images' classes are mere numbers, there is nothing to compare but their count.
    """
    here, there = images.classes, tuple(names)
    if here == tuple(map(str, range(len(there)))):
        return
    if names and images.labels is not None and here != there:
        pairs = enumerate(zip(here, there, strict=False))
        differ = next((f" (number {i} is {one} and {other})" for i, (one, other) in pairs if one != other), "")
        raise MacsError(
            f"{images.name} has the classes {few(here)}, but {whose} {few(there)}"
            f"{differ if len(here) > SHOWN else ''}; the labels must count the same classes in the same order."
        )


def few(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,} in all)" if len(names) > SHOWN else "")


def warn_of_guessing(accuracy: float | None, classes: int, images: str) -> None:
    """Point out a network that knows its classes hardly better than chance; an accuracy of None is not known."""
    if accuracy is not None and accuracy <= min(1.5 / classes, 0.6):
        warn(
            f"The network is right on {accuracy:.1%} of {images}, where guessing among {classes} classes gives "
            f"{1 / classes:.1%}; check its training, its weights and the order of the classes before you rely on it."
        )


def warn_of_preparation(images: ImageSet, wanted: Preparation | None) -> None:
    """Point out images of the network's size that were not made ready as the network says that it wants them."""
    found = images.preparation
    if wanted is not None and found is not None and found.size == wanted.size and found != wanted.geometry:
        warn(
            f"{images.name} was prepared otherwise than the network wants it: the shorter side resized to "
            f"{found.resize} ({found.interpolation}) instead of {wanted.resize} ({wanted.interpolation}); "
            "load it with preparation=net.preparation."
        )


def refuse_seen(images: ImageSet, trained_on: str) -> None:
    """Refuse images of the set that a network was trained on, where that can be known: both are folders."""
    seen, given = Place(trained_on), Place(images.whole_name)
    if not seen.kind == given.kind == "folder":
        return
    training, place = seen.folder("train").resolve(), given.folder(images.origin.split).resolve()
    if place == training or training in place.parents or place in training.parents:
        raise MacsError(f"The network was trained on images of {place}; give other ID images with --images.")
    known = [name for name in images.files if _same_file(training / name, place / name)]
    if len(known) == len(images):
        raise MacsError(
            f"The images of {place} are those of {training}, on which the network was trained; give others."
        )
    if known:
        warn(
            f"{len(known):,} of the {len(images):,} images of {place} are also in {training}, on which the network was "
            f"trained, as {known[0]} is: it is surer of these than of new ones, so take them out."
        )


def _same_file(one: Path, other: Path) -> bool:
    return one.is_file() and filecmp.cmp(one, other, shallow=False)
