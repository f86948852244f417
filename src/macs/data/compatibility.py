"""Checks that images suit a network: the same classes, none of its training images, an accuracy above chance."""

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data.imageset import ImageSet
from macs.data.loading import Place
from macs.data.spec import MEMORY, DataSpec

SHOWN = 10  # names of classes that a message lists


def same_classes(images: ImageSet, names: Sequence[str], whose: str) -> None:
    """Refuse labelled images whose classes are not `names` in this order.

    Nothing is compared if no names are known; classes that are mere numbers must not be more.
    """
    given, expected = images.classes, tuple(names)
    if len(given) <= len(expected) and given == tuple(map(str, range(len(given)))):
        return
    if names and images.labels is not None and given != expected:
        pairs = enumerate(zip(given, expected, strict=False))
        differ = next((f" (number {i} is {ours} and {theirs})" for i, (ours, theirs) in pairs if ours != theirs), "")
        raise MacsError(
            f"{images.name} has the classes {few(given)}, but {whose} {few(expected)}"
            f"{differ if len(given) > SHOWN else ''}; the labels must count the same classes in the same order."
        )


def few(names: Sequence[str]) -> str:
    """Return the names, or the first ten and their number."""
    return ", ".join(names[:SHOWN]) + (f", ... ({len(names):,} in all)" if len(names) > SHOWN else "")


def warn_of_guessing(accuracy: float | None, classes: int, images: str) -> None:
    """Warn of a network that is hardly better than chance; an accuracy of None is unknown."""
    if accuracy is not None and accuracy <= min(1.5 / classes, 0.6):
        warn(
            f"The network is right on {accuracy:.1%} of {images}, where guessing among {classes} classes gives "
            f"{1 / classes:.1%}; check its training, its weights and the order of the classes before you rely on it."
        )


def refuse_seen(images: ImageSet, trained_on: str) -> None:
    """Refuse images that a network was trained on; only folders can be compared."""
    seen, source = Place(trained_on), Place(images.whole_name)
    if not seen.kind == source.kind == "folder":
        return
    training, place = seen.folder("train").resolve(), source.folder(images.origin.split).resolve()
    if place == training or training in place.parents or place in training.parents:
        raise MacsError(f"The network was trained on images of {place}; give other ID images with --images.")
    known = [name for name in images.files if _same_file(training / name, place / name)]
    if len(known) == len(images):
        raise MacsError(
            f"The images of {place} are those of {training}, on which the network was trained; give others."
        )
    if known:
        warn(
            f"{len(known):,} of the {len(images):,} images of {place}, such as {known[0]}, are also in {training}, on "
            "which the network was trained: it is more confident on these than on new ones, so remove them."
        )


def warn_of_trained_outliers(sets: Mapping[str, ImageSet], outliers: DataSpec) -> set[str]:
    """Warn of OOD sets that hold outliers of the training, and return their names.

    All images are the same if the fingerprints are equal. Of a folder, files are compared, if both have the same name.
    """
    found = set()
    for name, images in sets.items():
        same = images.spec.fingerprint == outliers.fingerprint
        count = len(images) if same else _shared_with(images, outliers)
        if count:
            found.add(name)
            which = "All" if count == len(images) else f"{count:,} of the {len(images):,}"
            warn(
                f"{which} images of the OOD set {name} are outliers that the network was trained with, so they do not "
                "show how it judges unknown images; measure on others."
            )
    return found


def _shared_with(images: ImageSet, outliers: DataSpec) -> int:
    """Return the number of images that are also among these outliers, as far as paths and files tell."""
    if ":" in outliers.source or MEMORY in (outliers.source, images.origin.source):
        return 0  # module:Name may be code that only a record names, which is not imported
    theirs, ours = Place(outliers.source), Place(images.origin.source)
    if not theirs.kind == ours.kind == "folder":
        same = (outliers.source, outliers.split) == (images.origin.source, images.origin.split)
        return min(len(images), outliers.images) if same else 0
    trained, here = theirs.folder(outliers.split).resolve(), ours.folder(images.origin.split).resolve()
    if trained == here:
        return min(len(images), outliers.images)
    return sum(trained in (here / name).parents or _same_file(trained / name, here / name) for name in images.files)


def _same_file(a: Path, b: Path) -> bool:
    return a.is_file() and filecmp.cmp(a, b, shallow=False)
