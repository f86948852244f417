"""Map-style datasets of torch, torchvision or the user: `len(dataset)` and `dataset[i]` are all that is needed.

An item is a picture, or a tuple that begins with a picture and its label. Pictures are PIL images or uint8 arrays and
tensors: floating-point pixels have been changed by transforms that belong to a network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError, first_line
from macs.core.registry import users_code
from macs.data.pictures import to_rgb

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION = 0x0112  # the EXIF tag
PROBES = 4  # items that are read to check a dataset


class DatasetPictures:
    """The pictures of a map-style dataset, read by one thread at a time: the dataset may not be thread-safe."""

    def __init__(self, dataset: Any, name: str) -> None:
        if isinstance(dataset, type) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            what = dataset.__name__ if isinstance(dataset, type) else f"a {type(dataset).__name__}"
            raise MacsError(f"{name} is not a dataset: {what} does not have len(dataset) and dataset[i].")
        self.dataset, self.name, self.lock = dataset, name, Lock()
        with users_code(f"{name} cannot say how many images it has"):
            self.length = len(dataset)
        if not self.length:
            raise MacsError(f"{name} holds no images; check where it comes from.")

    def __len__(self) -> int:
        return self.length

    def item(self, i: int) -> tuple[Any, Any]:
        """A picture and its label, None if it has none."""
        with self.lock, users_code(f"{self.name} fails at item {i}"):
            item = self.dataset[i]
        if isinstance(item, dict):
            raise MacsError(f"{self.name} gives dictionaries; let it give (image, label), or use ImageSet.from_hf.")
        if isinstance(item, tuple | list):
            return (item[0] if item else None), (item[1] if len(item) > 1 else None)
        return item, None

    def __getitem__(self, i: int, /) -> Image.Image:
        where = f"item {i} of {self.name}"
        return as_rgb(self.item(i)[0], where)

    def labels(self) -> NDArray[np.int64] | None:
        """The label of each item, None if there are none: from the dataset's own list, else from the items."""
        probes = {i: self.label(i) for i in probed(len(self))}
        if all(label is None for label in probes.values()):
            return None
        listed = listed_labels(self.dataset)
        if listed is not None and len(listed) == len(self) and all(listed[i] == probes[i] for i in probes):
            return listed
        labels = [self.label(i) for i in range(len(self))]
        if None in labels:
            raise MacsError(f"Item {labels.index(None)} of {self.name} has no label, but others have one; label all.")
        return np.array(labels, np.int64)

    def label(self, i: int) -> int | None:
        label = self.item(i)[1]
        number = label.item() if hasattr(label, "item") and getattr(label, "ndim", 0) == 0 else label
        if number is not None and not isinstance(number, int):
            raise MacsError(f"Item {i} of {self.name} has the label {label!r:.100}; labels must be class numbers.")
        return number

    def check_repeatable(self) -> None:
        """Refuse a dataset with random transforms: a set of images must be the same each time it is read."""
        for i in probed(len(self)):
            if self[i].tobytes() != self[i].tobytes():
                raise MacsError(
                    f"Item {i} of {self.name} is a different image each time; leave out its random transforms, since "
                    "training adds its own (--augment)."
                )


def probed(length: int) -> list[int]:
    """A few positions, spread over a dataset."""
    return sorted({round(i * (length - 1) / (PROBES - 1)) for i in range(PROBES)})


def as_rgb(image: Any, where: str) -> Image.Image:
    """A PIL image, turned upright as a file is, or a uint8 array or tensor, as an RGB picture."""
    from PIL import Image, ImageOps

    try:
        if not isinstance(image, Image.Image):
            return to_rgb(Image.fromarray(as_rows(image, where)))
        turned = image.getexif().get(ORIENTATION, 1) != 1
        return to_rgb(ImageOps.exif_transpose(image) if turned else image)
    except MacsError:
        raise
    except Exception as error:  # decoders raise anything on a broken file
        raise MacsError(f"Cannot read {where}: {first_line(error)}; leave it out.") from None


def as_rows(image: Any, where: str) -> NDArray[np.uint8]:
    """An array H x W or H x W x channels; tensors usually have their channels first, arrays last."""
    if not hasattr(image, "dtype") or not hasattr(image, "shape"):
        raise MacsError(f"{where} is a {type(image).__name__}; give a PIL image, or a uint8 array or tensor.")
    if str(image.dtype).removeprefix("torch.") != "uint8":
        raise MacsError(
            f"{where} has pixels of {image.dtype}; leave out transforms such as ToTensor and Normalize, so that it is "
            "a PIL image or uint8: the network itself scales and normalises."
        )
    tensor = hasattr(image, "detach")
    array = np.asarray(image.detach().cpu() if tensor else image)
    if array.ndim == 3:
        first, last = array.shape[0] in (1, 3, 4), array.shape[-1] in (1, 3, 4)
        if first and (tensor or not last):
            array = array.transpose(1, 2, 0)
        if array.shape[-1] == 1:
            array = array[..., 0]
    return np.ascontiguousarray(array)


def listed_labels(dataset: Any) -> NDArray[np.int64] | None:
    """The labels that torchvision's datasets hold as a list, also of a torch Subset; None if there is no such list."""
    if hasattr(dataset, "dataset") and hasattr(dataset, "indices"):
        labels = listed_labels(dataset.dataset)
        return None if labels is None else labels[np.asarray(dataset.indices)]
    for name in ("targets", "labels"):
        values = getattr(dataset, name, None)
        if values is not None and not callable(values):
            numbers = np.asarray(values)
            return numbers.astype(np.int64) if numbers.ndim == 1 and numbers.dtype.kind in "iu" else None
    return None


def listed_classes(dataset: Any) -> tuple[str, ...]:
    """The class names in a dataset's `classes`, also of a torch Subset; none if it has none."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        return ()
    return distinct([name if isinstance(name, str) else ", ".join(map(str, synonyms(name))) for name in classes])


def synonyms(name: Any) -> Iterable[Any]:
    """The names of one class: torchvision's ImageNet has tuples of them."""
    return name if isinstance(name, tuple | list) else (name,)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The names, a repeated one with its class number added: ImageNet has two classes called crane."""
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    return tuple(name if first[name] == i else f"{name} ({i})" for i, name in enumerate(names))
