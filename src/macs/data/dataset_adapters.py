"""Datasets of other libraries as pictures and labels: map-style datasets of torch, and those of Hugging Face.

A Hugging Face dataset comes from its hub, a folder that save_to_disk wrote, or a folder of parquet or image files.

The columns of images and labels are found by the types of their features. On the command line such a dataset is called

    hf/org/name            a dataset of the hub
    hf/org/name/config     one of its configurations
    hf/path/to/folder      a folder on this machine
    hf/org/name:column     the labels are in that column, if several could hold them
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.console import one_line_about_the_hub
from macs.core.errors import MacsError, first_line
from macs.core.files import kind_of, user_path
from macs.core.registry import users_code
from macs.data.preparation import to_rgb

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
        """Return a picture and its label, None if it has none."""
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
        """Return the label of each item, None if there are none: from the dataset's own list, else from the items."""
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
        number = plain_number(label)
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


def plain_number(label: Any) -> Any:
    """Return a label as a plain number, if it is a tensor or an array of one."""
    return label.item() if hasattr(label, "item") and getattr(label, "ndim", 0) == 0 else label


def probed(length: int) -> list[int]:
    """Return a few positions, spread over a dataset."""
    return sorted({round(i * (length - 1) / (PROBES - 1)) for i in range(PROBES)})


def as_rgb(image: Any, where: str) -> Image.Image:
    """Return a PIL image, turned upright as a file is, or a uint8 array or tensor, as an RGB picture."""
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
    """Return an array H x W or H x W x channels; tensors usually have their channels first, arrays last."""
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
    """Return the labels that torchvision's datasets, also in a torch Subset, hold as a list; None without one."""
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
    """Return the class names in a dataset's `classes`, also of a torch Subset; none if it has none."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    classes = getattr(dataset, "classes", None)
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        return ()
    return distinct([name if isinstance(name, str) else ", ".join(map(str, synonyms(name))) for name in classes])


def synonyms(name: Any) -> Iterable[Any]:
    """Return the names of one class: torchvision's ImageNet has tuples of them."""
    return name if isinstance(name, tuple | list) else (name,)


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, a repeated one with its class number added: ImageNet has two classes called crane."""
    first = {name: i for i, name in reversed(list(enumerate(names)))}
    return tuple(name if first[name] == i else f"{name} ({i})" for i, name in enumerate(names))


PREFIX = "hf/"
VALIDATION = ("val", "validation", "valid", "dev")  # names of the split that we call val
NEEDED = "Hugging Face datasets need the package `datasets`; run: pip install 'macs-ood[datasets]'."


class HFPictures:
    """The pictures in a column of a Hugging Face dataset; only that column is read."""

    def __init__(self, dataset: Any, column: str, name: str) -> None:
        self.dataset, self.column, self.name = dataset.with_format(None).select_columns([column]), column, name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, i: int, /) -> Image.Image:
        where = f"image {i} of {self.name}"
        try:
            image = self.dataset[i][self.column]
        except Exception as error:  # decoders raise anything on a broken picture
            raise MacsError(f"Cannot read {where}: {first_line(error):.300}; leave it out.") from None
        return as_rgb(image, where)


def open_hf(name: str, split: str) -> tuple[Any, str]:
    """Return a split of the dataset with this command-line name, and the column of its labels if the name gives one."""
    path, config, column = parse(name)
    with explained(name):
        import datasets

        opened = datasets.load_from_disk(str(path)) if saved(path) else datasets.load_dataset(str(path), config)
    return split_of(opened, split, name), column


def splits_of(name: str) -> list[str]:
    """Return the splits of a dataset by our names: train, val, test, ...; none if all of its images are one set."""
    path, config, _ = parse(name)
    with explained(name):
        import datasets

        if saved(path):
            opened = datasets.load_from_disk(str(path))
            splits = list(opened) if isinstance(opened, Mapping) else []
        else:
            splits = datasets.get_dataset_split_names(str(path), config)
    return ["val" if split in VALIDATION else split for split in splits]


def split_of(dataset: Any, split: str, name: str) -> Any:
    """Return a split of a DatasetDict; a Dataset is one set, whatever the split."""
    if not isinstance(dataset, Mapping):
        return dataset
    accepted = VALIDATION if split == "val" else (split,)
    available = next((key for key in accepted if key in dataset), None)
    if available is None:
        raise MacsError(f"{name} has the splits {', '.join(dataset)} and no {split}; name one of these.")
    return dataset[available]


def parse(name: str) -> tuple[str | Path, str | None, str]:
    """Return a folder or the name of a dataset on the hub, its configuration, and the column of its labels."""
    whole, _, column = name.removeprefix(PREFIX).partition(":")
    folder = user_path(whole)
    if kind_of(folder) == "a folder":
        return folder, None, column
    *_, config = parts = whole.split("/")
    return ("/".join(parts[:2]), config, column) if len(parts) == 3 and all(parts) else (whole, None, column)


def saved(path: str | Path) -> bool:
    """Return whether a folder was written by save_to_disk."""
    return isinstance(path, Path) and any(kind_of(path / file) for file in ("dataset_dict.json", "state.json"))


def image_column(dataset: Any, column: str, name: str) -> str:
    """Return the column of images: the one that is named, else the only one of that type."""
    return _column(dataset, column, "Image", "images", name) or _missing(name, "column of images", dataset)


def label_column(dataset: Any, column: str, name: str) -> str:
    """Return the column of labels: the one that is named, else the only one of that type; empty if there is none."""
    return _column(dataset, column, "ClassLabel", "labels", name)


def _column(dataset: Any, column: str, kind: str, what: str, name: str) -> str:
    features = features_of(dataset, name)
    if column:
        return column if column in features else _missing(name, f"column called {column!r}", dataset)
    columns = [key for key, feature in features.items() if type(feature).__name__ == kind]
    if len(columns) > 1:
        option = "image=" if kind == "Image" else "label="
        write = "" if kind == "Image" else f", or {PREFIX}...:{columns[0]} on the command line"
        raise MacsError(
            f"{name} has {what} in the columns {', '.join(columns)}; choose one with {option}{columns[0]!r}{write}."
        )
    return columns[0] if columns else ""


def _missing(name: str, what: str, dataset: Any) -> str:
    raise MacsError(f"{name} has no {what}; its columns are {', '.join(dataset.features)}.")


def features_of(dataset: Any, name: str) -> Mapping[str, Any]:
    features = getattr(dataset, "features", None)
    if not isinstance(features, Mapping) or not hasattr(dataset, "select_columns"):
        raise MacsError(f"{name} is a {type(dataset).__name__}, not a Hugging Face dataset with columns.")
    if not hasattr(dataset, "__len__"):
        raise MacsError(f"{name} is streamed, but images are read in any order; load it without streaming=True.")
    if not len(dataset):
        raise MacsError(f"{name} holds no images; check where it comes from.")
    return features


def read_labels(dataset: Any, column: str, name: str) -> tuple[NDArray[np.int64] | None, Sequence[str]]:
    """Return the labels in a column and the names of the classes; no labels if all are -1, as in hidden test sets."""
    values = dataset.select_columns([column]).with_format("arrow")[:][column]
    if values.null_count:
        raise MacsError(f"{name} has {values.null_count:,} rows without a label in the column {column}.")
    names = getattr(dataset.features[column], "names", None)
    labels = values.to_numpy()
    return None if labels.dtype.kind == "i" and (labels == -1).all() else labels, distinct(names or ())


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn whatever goes wrong with the package, the hub or the files into a MacsError."""
    try:
        with one_line_about_the_hub():
            yield
    except ImportError:
        raise MacsError(NEEDED) from None
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        raise MacsError(f"Cannot load {name} with the package `datasets`: {first_line(error):.300}.") from error
