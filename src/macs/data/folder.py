"""A folder of images: its files, and the classes that its folders name."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.data.pictures import SUFFIXES
from macs.data.walking import folders_in, printable_name, walk_names


def images_under(folder: Path) -> list[str]:
    """Paths of the images below a folder, relative to it, all sorted together."""
    names = []
    for name, trouble in walk_names(folder):
        if trouble:
            raise MacsError(f"{trouble.rstrip('.')}; make it readable, or move it away.")
        names.append(name)
    if not names:
        raise MacsError(f"The folder {folder} holds no images ({', '.join(SUFFIXES)}); check the path.")
    return sorted(names)


def labels_by_folder(folder: Path, names: Sequence[str]) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
    """Labels from the folders directly inside, one class per folder; None if no image lies in such a folder."""
    flat = [name for name in names if "/" not in name]
    if len(flat) == len(names):
        return None, ()
    if flat:
        raise MacsError(
            f"{folder / flat[0]} lies beside the class folders of {folder}, so its class is unknown; "
            "move it into one of them, or away."
        )
    label_of = {name: label for label, name in enumerate(folders_in(folder))}
    labels = np.array([label_of[name.split("/", 1)[0]] for name in names], np.int64)
    return labels, tuple(map(printable_name, label_of))
