"""Hugging Face datasets: from their hub, from a folder that save_to_disk wrote, or from one of parquet or image files.

The columns of images and labels are found by the types of their features. On the command line such a dataset is called

    hf/org/name            a dataset of the hub
    hf/org/name/config     one of its configurations
    hf/path/to/folder      a folder on this machine
    hf/org/name:column     the labels are in that column, if several could hold them
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.console import one_line_about_the_hub
from macs.core.errors import MacsError, first_line
from macs.core.files import kind_of, user_path
from macs.data.torch_datasets import as_rgb, distinct

if TYPE_CHECKING:
    from PIL import Image

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
    """A split of the dataset with this command-line name, and the column of its labels if the name gives one."""
    path, config, column = parse(name)
    with explained(name):
        import datasets

        opened = datasets.load_from_disk(str(path)) if saved(path) else datasets.load_dataset(str(path), config)
    return split_of(opened, split, name), column


def splits_of(name: str) -> list[str]:
    """The splits of a dataset by our names: train, val, test, ...; none if all of its images are one set."""
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
    """A split of a DatasetDict; a Dataset is one set, whatever the split."""
    if not isinstance(dataset, Mapping):
        return dataset
    accepted = VALIDATION if split == "val" else (split,)
    available = next((key for key in accepted if key in dataset), None)
    if available is None:
        raise MacsError(f"{name} has the splits {', '.join(dataset)} and no {split}; name one of these.")
    return dataset[available]


def parse(name: str) -> tuple[str | Path, str | None, str]:
    """A folder or the name of a dataset on the hub, its configuration, and the column of its labels."""
    whole, _, column = name.removeprefix(PREFIX).partition(":")
    folder = user_path(whole)
    if kind_of(folder) == "a folder":
        return folder, None, column
    *_, config = parts = whole.split("/")
    return ("/".join(parts[:2]), config, column) if len(parts) == 3 and all(parts) else (whole, None, column)


def saved(path: str | Path) -> bool:
    """Whether a folder was written by save_to_disk."""
    return isinstance(path, Path) and any(kind_of(path / file) for file in ("dataset_dict.json", "state.json"))


def image_column(dataset: Any, column: str, name: str) -> str:
    """The column of images: the one that is named, else the only one of that type."""
    return _column(dataset, column, "Image", "images", name) or _missing(name, "column of images", dataset)


def label_column(dataset: Any, column: str, name: str) -> str:
    """The column of labels: the one that is named, else the only one of that type; empty if there is none."""
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
    """The labels in a column and the names of the classes; no labels if all are -1, as in hidden test sets."""
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
