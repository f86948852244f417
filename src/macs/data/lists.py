"""A list of image files: on each line the path of a picture, and its label if it has one.

cat/1.jpg 0            labels are class numbers, counted from 0; -1 means that no picture has a label
cat/1.jpg,tabby cat    or class names, after a space, a tab, a comma or a semicolon
cat/1.jpg              or none at all
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import input_file, kind_of, reason
from macs.data.pictures import SUFFIXES

CLASSES = "classes.txt"  # the file beside a list that names the classes, one per line

# A path may contain spaces and commas, so it ends with the last suffix of an image; the label is what comes after it.
_SUFFIX = "|".join(suffix[1:] for suffix in SUFFIXES)
_LINE = re.compile(rf"\"?(.*\.(?:{_SUFFIX}))\"?(?:\s*[\s,;]\s*(.*))?", re.IGNORECASE)
_NUMBER = re.compile(r"-?[0-9]+", re.ASCII)


@dataclass(frozen=True)
class ImageList:
    """The lines of a list: paths as they are written, and labels as text; no labels if the list has none."""

    file: Path
    paths: tuple[str, ...]
    labels: tuple[str, ...]

    @classmethod
    def read(cls, file: str | Path) -> "ImageList":
        path = input_file(file, "image list")
        paths: list[str] = []
        labels: list[str] = []
        for i, line in enumerate(lines_of(path)):
            match = _LINE.fullmatch(line)
            if not match:
                raise wrong(path, i, f"holds {shown(line)}; write the path of an image ({', '.join(SUFFIXES)}) there")
            label = sys.intern(match[2] or "")
            if i and kind_of_label(label) != kind_of_label(labels[0]):
                first, here = (f"{kind_of_label(text)} ({text or 'none'})" for text in (labels[0], label))
                raise wrong(path, i, f"has {here} as its label, but line 1 has {first}; use one kind for all")
            paths.append(match[1])
            labels.append(label)
        if not paths:
            raise MacsError(f"The image list {path} is empty; write one image on each line.")
        return cls(path, tuple(paths), tuple(labels) if labels[0] and set(labels) != {"-1"} else ())

    def check_files(self, base: Path) -> None:
        """Refuse a list that names a missing file."""
        start = f"{base}{os.sep}"  # joining a million Paths would take longer than looking at the files
        for i, path in enumerate(self.paths):
            if not os.access(start + path, os.F_OK) and not (base / path).exists():  # an absolute path fails the first
                raise wrong(self.file, i, f"names {base / path}, which is not there; check the path and its root")

    def numbered(self, classes: Sequence[str] = ()) -> tuple[NDArray[np.int64] | None, tuple[str, ...]]:
        """Labels as class numbers, and the names of the classes; `classes` gives these and their order."""
        names = tuple(classes) or self.class_names_beside()
        if not self.labels:
            return None, names
        if kind_of_label(self.labels[0]) == "a number":
            labels = np.array([int(label) if len(label) < 10 else 10**9 for label in self.labels], np.int64)
            names = names or tuple(map(str, range(min(int(labels.max()), 10**6) + 1)))
            self._refuse((labels < 0) | (labels >= len(names)), f"is not in 0 to {len(names) - 1}")
            return labels, names
        names = names or tuple(sorted(set(self.labels)))
        number = {name: i for i, name in enumerate(names)}
        labels = np.array([number.get(label, -1) for label in self.labels], np.int64)
        self._refuse(labels < 0, f"is not one of the {len(names):,} classes")
        return labels, names

    def _refuse(self, wrong_ones: NDArray[np.bool_], why: str) -> None:
        if wrong_ones.any():
            i = int(wrong_ones.argmax())
            raise wrong(self.file, i, f"has the label {shown(self.labels[i])}, which {why}; correct it")

    def class_names_beside(self) -> tuple[str, ...]:
        """The lines of classes.txt in the list's folder; none if there is no such file."""
        file = self.file.parent / CLASSES
        return tuple(lines_of(file)) if kind_of(file) == "a file" else ()


def base_of(file: Path, folders: Sequence[Path]) -> Path:
    """The folder that the paths of a list start from: the first that holds the list's first picture, else the first."""
    with input_file(file, "image list").open(encoding="utf-8-sig", errors="replace") as lines:
        match = _LINE.fullmatch(lines.readline().strip())
    return next((folder for folder in folders if match and (folder / match[1]).exists()), folders[0])


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a text file, stripped; an empty line is refused."""
    try:
        with file.open(encoding="utf-8-sig") as lines:
            for i, line in enumerate(map(str.strip, lines)):
                if not line:
                    raise wrong(file, i, "is empty; remove it")
                yield line
    except UnicodeDecodeError:
        raise MacsError(f"Cannot read {file}: it is not text in UTF-8.") from None
    except OSError as error:
        raise MacsError(f"Cannot read {file}: {reason(error)}.") from None


def kind_of_label(label: str) -> str:
    return "a number" if _NUMBER.fullmatch(label) else "text" if label else "nothing"


def shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


def wrong(file: Path, i: int, what: str) -> MacsError:
    return MacsError(f"Line {i + 1:,} of {file} {what}.")
