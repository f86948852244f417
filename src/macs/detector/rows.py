"""Rows: what a model says of N inputs of any kind, as arrays of logits, probabilities or features, with labels.

    Rows.of(features, logits=logits, labels=labels)

An array is one of numpy, torch or pandas, of any width of float; it stays as it is until a slice of it is judged. A row
with a number that is not finite gets a reason in place of a verdict. Needs no torch.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data.compatibility import few
from macs.data.spec import short_hash

Array = NDArray[Any]
KINDS = ("features", "logits", "probabilities")
NUMBERED = re.compile(r"(feature|logit|probabilit(?:y|ie))s?[ _.\-\[]?(\d{1,9})\]?", re.IGNORECASE)
SINGULAR = {"feature": "features", "logit": "logits", "probability": "probabilities", "probabilitie": "probabilities"}
LABELS = ("label", "labels")
BATCH = 1024  # rows that are judged at a time
ENOUGH = 8  # rows that are not all distributions by chance
UNEVEN = 0.02  # by how much probabilities in 16 bits may miss a sum of one
SAMPLE = 64  # rows that tell two sets apart


@dataclass(frozen=True)
class Columns:
    """The arrays that a detector takes, by their widths; 0 where it takes none."""

    features: int = 0
    logits: int = 0
    probabilities: bool = False  # whether these are given in place of logits
    names: tuple[str, ...] = ()  # of the features, if they came in a table

    @property
    def takes(self) -> dict[str, int]:
        """The widths of the arrays by their names."""
        return {name: width for name, width in (("features", self.features), (self.second, self.logits)) if width}

    @property
    def second(self) -> str:
        """The name of the array beside the features."""
        return "probabilities" if self.probabilities else "logits"

    def __str__(self) -> str:
        return " and ".join(f"{name} (N x {width})" for name, width in self.takes.items())


class Slice(NamedTuple):
    """A batch of rows in float32, and what is wrong with those that cannot be judged, by their position in all rows.

    `logits` may be probabilities.
    """

    places: NDArray[np.int64]  # of these rows
    features: NDArray[np.float32] | None
    logits: NDArray[np.float32] | None
    reasons: dict[int, str]

    def usable(self) -> "Slice":
        """The rows that can be judged."""
        if not self.reasons:
            return self
        good = ~np.isin(self.places, [*self.reasons])
        features, logits = (None if array is None else array[good] for array in (self.features, self.logits))
        return Slice(self.places[good], features, logits, {})


@dataclass(frozen=True, eq=False)
class Rows:
    """Arrays of N rows; `probabilities` says that `logits` holds probabilities."""

    name: str
    features: Array | None = None  # N x D
    logits: Array | None = None  # N x K
    labels: NDArray[np.int64] | None = None  # N
    classes: tuple[str, ...] = ()  # the names of the classes that the labels count
    probabilities: bool = False
    names: tuple[str, ...] = ()  # of the features, if they came in a table

    @classmethod
    def of(
        cls,
        features: Any = None,
        *,
        logits: Any = None,
        probabilities: Any = None,
        labels: Any = None,
        classes: Sequence[str] = (),
        name: str = "the data",
        labelled: bool = True,
    ) -> "Rows":
        """Rows from arrays, from a table, from a mapping of names to arrays, or from Rows; an error says what is wrong.

        `classes` are the names of the logits' columns, which labels that are text refer to; with `labelled` false,
        labels in a table or a mapping do not matter.
        """
        if isinstance(features, Rows) and logits is probabilities is labels is None:
            return features
        if isinstance(features, Mapping):
            if given := [
                key for key, value in (("logits", logits), ("probabilities", probabilities)) if value is not None
            ]:
                raise MacsError(f"{name}: {given[0]} is given twice, in the mapping and beside it; give it once.")
            found = {key: features[key] for key in (*KINDS, *(LABELS if labelled else ())) if key in features}
            if not found.keys() & {*KINDS}:
                raise MacsError(
                    f"{name} has {few([*map(str, features)]) or 'no arrays'}; it needs arrays called "
                    f"{', '.join(KINDS)}."
                )
            single = found.pop("label", None)
            arrays = {"labels": single, **found} if labels is None else {**found, "labels": labels}
            return cls.of(**arrays, classes=classes, name=name)
        names: tuple[str, ...] = ()
        if is_table(features):
            table, names = split_table(features, name)
            if table.keys() - {"features"}:
                beside = {"logits": logits, "probabilities": probabilities, "labels": labels}
                merged = {**table, **{key: value for key, value in beside.items() if value is not None}}
                return cls.of(merged, classes=classes, name=name, labelled=labelled).named(names)
            features = table["features"]
        if logits is not None and probabilities is not None:
            raise MacsError(f"{name}: give logits or probabilities, not both.")
        if features is None and logits is None and probabilities is None:
            raise MacsError(f"{name} has no arrays; give features=, logits= or probabilities=.")
        scores = logits if probabilities is None else probabilities
        what = "logits" if probabilities is None else "probabilities"
        if named := is_table(scores):
            scores, classes = by_class(scores, tuple(map(str, classes)))
        made = cls(
            name,
            None if features is None else matrix(features, f"The features of {name}"),
            None if scores is None else matrix(scores, f"The {what} of {name}"),
            classes=tuple(classes) if named else (),
            probabilities=probabilities is not None,
            names=names,
        )
        if made.logits is not None and made.logits.shape[1] == 1:
            raise MacsError(
                f"The {what} of {name} have one column, so there is one class only; of a classifier of two classes, "
                f"give both columns{' (1 - p and p)' if made.probabilities else ' (for one logit z: 0 and z)'}."
            )
        if made.features is not None and made.logits is not None and len(made.features) != len(made.logits):
            raise MacsError(f"{name} has {len(made.features):,} rows of features and {len(made.logits):,} of {what}.")
        if made.logits is not None and not made.probabilities and sums_to_one(made.logits):
            raise MacsError(
                f"The logits of {name} are probabilities, since every row sums to one; give the logits, or "
                "calibrate on probabilities= (in a file, an array or columns of that name)."
            )
        return made if labels is None else made._labelled(labels, tuple(map(str, classes)))

    def _labelled(self, labels: Any, names: tuple[str, ...]) -> "Rows":
        """These rows with labels; text becomes numbers of classes, which are in alphabetical order unless named."""
        values = np.asarray(plain_array(labels))
        if values.shape != (len(self),):
            raise MacsError(f"{self.name} has {len(self):,} rows, but its labels have the shape {values.shape}.")
        if values.dtype.kind in "fc" and not (np.isfinite(values).all() and (values == values.round()).all()):
            raise MacsError(f"The labels of {self.name} must be whole numbers or names, but some are neither.")
        width = 0 if self.logits is None else self.logits.shape[1]
        if values.dtype.kind in "OUS":
            if not all(isinstance(value, str) for value in values.tolist()):
                raise MacsError(f"The labels of {self.name} must be whole numbers or names, but some are neither.")
            found = tuple(sorted(set(values.tolist())))
            known = names or found
            if width and len(known) != width:
                raise MacsError(
                    f"The labels of {self.name} name {len(known)} classes ({few(known)}), but there are {width} "
                    "logits; give classes, the names of the columns in order."
                )
            if unknown := [value for value in found if value not in known]:
                raise MacsError(
                    f"{self.name} has the label {unknown[0]!r}, which is none of the classes: {few(known)}."
                )
            numbers = {value: number for number, value in enumerate(known)}
            return replace(
                self, labels=np.array([numbers[value] for value in values.tolist()], np.int64), classes=known
            )
        whole = values.astype(np.int64)
        count = width or len(names) or (int(whole.max()) + 1 if len(whole) else 0)
        if len(whole) and not 0 <= whole.min() <= whole.max() < count:
            wrong = int(whole.min() if whole.min() < 0 else whole.max())
            raise MacsError(
                f"{self.name} has the label {wrong}, but the classes are numbered from 0 to {count - 1}; "
                "number them in the order of the logits, or give names as text."
            )
        return replace(self, labels=whole, classes=names)

    def __len__(self) -> int:
        arrays = (array for array in (self.features, self.logits) if array is not None)
        return len(next(arrays))

    @property
    def columns(self) -> Columns:
        """The widths of the arrays."""
        features, logits = (0 if array is None else array.shape[1] for array in (self.features, self.logits))
        return Columns(features, logits, self.probabilities, self.names)

    def named(self, names: tuple[str, ...]) -> "Rows":
        """The same rows, with the names of the features."""
        return replace(self, names=names)

    def subset(self, positions: NDArray[np.int64], name: str = "") -> "Rows":
        """Some of the rows."""
        features, logits, labels = (
            None if array is None else array[positions] for array in (self.features, self.logits, self.labels)
        )
        return replace(self, name=name or self.name, features=features, logits=logits, labels=labels)

    def split(self, first: float | int, seed: int = 0) -> "tuple[Rows, Rows]":
        """Two sets drawn at random without overlap, as `ImageSet.split` draws; `first` is a number or a share."""
        count = round(first * len(self)) if isinstance(first, float) else int(first)
        if not 0 < count < len(self):
            raise MacsError(f"Cannot split {first} off the {len(self)} rows of {self.name}: one part would be empty.")
        order = np.random.default_rng(seed).permutation(len(self))
        return self.subset(np.sort(order[:count])), self.subset(np.sort(order[count:]))

    def matched(self, columns: Columns) -> "Rows":
        """The arrays that a detector takes, with its widths; an error if some are missing or have others."""
        features, logits = (self.features if columns.features else None), (self.logits if columns.logits else None)
        for what, array, width in (("features", features, columns.features), (columns.second, logits, columns.logits)):
            if width and array is None:
                raise MacsError(f"The detector takes {columns}, but {self.name} has no {what}.")
        if columns.names and self.names and self.names != columns.names:
            place = {name: i for i, name in enumerate(self.names)}
            if missing := [name for name in columns.names if name not in place]:
                raise MacsError(
                    f"{self.name} has no column {missing[0]!r}"
                    + (f", nor {len(missing) - 1} others" if len(missing) > 1 else "")
                    + f"; the detector was fitted to {few(columns.names)}."
                )
            assert features is not None  # since they have names
            features = features[:, [place[name] for name in columns.names]]
        for what, array, width in (("features", features, columns.features), (columns.second, logits, columns.logits)):
            if array is not None and array.shape[1] != width:
                raise MacsError(
                    f"{self.name} has {array.shape[1]:,} {what} per row, but the detector was fitted to {width:,}."
                )
        if logits is not None and self.probabilities != columns.probabilities:
            has, takes = ("probabilities", "logits") if self.probabilities else ("logits", "probabilities")
            raise MacsError(f"{self.name} has {has}, but the detector was fitted to {takes}.")
        return replace(self, features=features, logits=logits, names=columns.names)

    def slices(self, batch: int = BATCH) -> Iterator[Slice]:
        """The rows in float32, a batch at a time, with the reason for each that cannot be judged."""
        for start in range(0, len(self), batch):
            features, logits = (
                None if array is None else in_float32(array[start : start + batch])
                for array in (self.features, self.logits)
            )
            places = np.arange(start, min(start + batch, len(self)))
            reasons: dict[int, str] = {}
            for array, called in ((logits, self.columns.second), (features, "features")):
                if array is not None and not np.isfinite(array).all():
                    bad = places[~np.isfinite(array).all(axis=1)].tolist()
                    reasons |= dict.fromkeys(
                        bad, f"Its {called} hold a number that is NaN, infinite or beyond 32 bits."
                    )
            if logits is not None and self.probabilities:
                wrong = (logits < 0).any(axis=1) | ~(np.abs(logits.sum(axis=1) - 1) <= UNEVEN)
                bad = [place for place in places[wrong].tolist() if place not in reasons]
                reasons |= dict.fromkeys(bad, "Its probabilities are not a distribution: they must sum to one.")
            yield Slice(places, features, logits, reasons)

    def usable(self, purpose: str) -> "Rows":
        """The rows that can be judged, with a warning if these are not all; an error if there are none."""
        if not len(self):
            raise MacsError(f"{self.name} has no rows {purpose}; give some.")
        reasons = {place: reason for part in self.slices() for place, reason in part.reasons.items()}
        if not reasons:
            return self
        first = min(reasons)
        if len(reasons) == len(self):
            raise MacsError(f"No row of {self.name} can be used {purpose}. Row {first}: {reasons[first]}")
        warn(
            f"{len(reasons):,} of the {len(self):,} rows of {self.name} are left out {purpose}. "
            f"Row {first}, the first: {reasons[first]}"
        )
        return self.subset(np.setdiff1d(np.arange(len(self)), [*reasons]))

    def hash(self) -> str:
        """A hash that is equal for the same rows in the same order, judged by a sample."""
        places = np.unique(np.linspace(0, len(self) - 1, SAMPLE).astype(np.int64))
        arrays = [array for array in (self.features, self.logits) if array is not None]
        shapes = repr([array.shape for array in arrays]).encode()
        return short_hash(shapes, *(np.ascontiguousarray(array[places], np.float32).tobytes() for array in arrays))


def plain_array(given: Any) -> Any:
    """A tensor of torch or a column of pandas as an array of numpy; anything else as it is."""
    if hasattr(given, "detach"):
        given = given.detach().cpu()
        return given.float().numpy() if str(given.dtype) == "torch.bfloat16" else given.numpy()
    return given.to_numpy() if hasattr(given, "to_numpy") else given


def by_name(given: Any, what: str) -> Mapping[str, Any]:
    """Several sets by their names; an error for a single one."""
    if not isinstance(given, Mapping):
        raise MacsError(f"The {what} must be a dict of rows by name, not a {type(given).__name__}.")
    return given


def matrix(given: Any, what: str) -> Array:
    """An array of N rows of numbers; `what` begins the sentence about any other."""
    if isinstance(given, str | PathLike):
        raise MacsError(f"{what} must be an array of numbers, not a text or a path; predict_files judges files.")
    if hasattr(given, "toarray") or getattr(given, "is_sparse", False):
        dense = ".toarray()" if hasattr(given, "toarray") else ".to_dense()"
        raise MacsError(f"{what} are sparse; give {dense} of them, or reduce them to fewer columns first.")
    try:
        if isinstance(given, np.ma.MaskedArray):  # a masked number is missing
            given = np.ma.filled(given.astype(np.promote_types(given.dtype, np.float32)), np.nan)
        array: Array = np.asanyarray(plain_array(given))
    except (ValueError, TypeError):
        raise MacsError(f"{what} must be one array of numbers, but its rows differ in length or in kind.") from None
    if array.dtype.kind == "O":
        raise MacsError(
            f"{what} must be an array of numbers, but it holds Python objects; convert it, for example with "
            "np.stack(list) or .astype('float32')."
        )
    if array.dtype.kind not in "fiub":
        raise MacsError(f"{what} must be an array of numbers, not of {array.dtype}.")
    if array.shape == (0,):  # of an empty list
        raise MacsError(f"{what} have no rows; give one at least.")
    if array.ndim != 2:
        raise MacsError(
            f"{what} must have two dimensions, one row per input, but the shape is {array.shape}; "
            f"{'give one row as an array of 1 x D' if array.ndim == 1 else 'flatten or pool each input to one row'}."
        )
    if not array.shape[1]:
        raise MacsError(f"{what} have no columns; give one at least.")
    return array


def in_float32(array: Array) -> NDArray[np.float32]:
    """An array in float32, not copied if it is one; numbers beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(array, np.float32, order="C")


def sums_to_one(logits: Array) -> bool:
    """Whether each of the first rows is a distribution, as after a softmax."""
    some = in_float32(logits[:BATCH])
    return len(some) >= ENOUGH and bool((some >= 0).all() and (np.abs(some.sum(axis=1) - 1) <= 1e-3).all())


def is_table(given: Any) -> bool:
    """Whether it has columns with names, as the frames of pandas and polars."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def split_table(table: Any, name: str) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The arrays in a frame, and the names of its features."""
    columns = [str(column) for column in table.columns]
    return arranged(columns, lambda place: plain_array(table[table.columns[place]]), name)


def by_class(table: Any, classes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """A frame of logits with its columns in the order of the classes, and the classes, which its columns may name."""
    names = tuple(map(str, table.columns))
    if sorted(names) == sorted(classes):
        return table[[table.columns[names.index(name)] for name in classes]], classes
    if classes or any(map(NUMBERED.fullmatch, names)):
        return table, classes
    return table, names


def arranged(
    columns: Sequence[str], column: Callable[[int], Any], name: str
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Arrays from the columns of a table, and the names of the features if they have their own.

    logit_0, logit_1, ... are the logits, and so with features and probabilities; `label` holds labels. Where no column
    is called like that, all others are features. Numbers start at 0 or 1 and leave none out: with a gap, the columns
    after it would be taken for others.
    """
    if twice := {entry for entry, count in Counter(columns).items() if count > 1}:
        raise MacsError(f"{name} has two columns that are called {min(twice)!r}; give each its own name.")
    arrays: dict[str, Array] = {}
    parts: dict[str, dict[int, int]] = {}
    others: list[int] = []
    for place, entry in enumerate(columns):
        if match := NUMBERED.fullmatch(entry):
            numbered = parts.setdefault(SINGULAR[match[1].lower()], {})
            if (other := numbered.setdefault(int(match[2]), place)) != place:
                raise MacsError(f"{name} has {columns[other]!r} and {entry!r}, which are one column; leave one out.")
        elif entry.lower() in LABELS:
            arrays["labels"] = column(place)
        elif entry.lower() in KINDS:
            arrays[entry.lower()] = nested(column(place), f"The column {entry!r} of {name}")
        else:
            others.append(place)
    for kind, places in parts.items():
        first, last = min(*places, 1), max(places)  # columns are counted from 0 or from 1
        if (missing := next(number for number in count(first) if number not in places)) < last:
            gap = re.sub("[0-9]+", str(missing), columns[places[last]])
            raise MacsError(f"{name} has a column {columns[places[last]]!r}, but none that is called {gap!r}; add it.")
        arrays[kind] = stacked([places[number] for number in sorted(places)], columns, column, name)
    names: tuple[str, ...] = ()
    if not arrays.keys() & {*KINDS}:
        if not others:
            raise MacsError(f"{name} has no columns of numbers; give one column per feature.")
        arrays["features"] = stacked(others, columns, column, name)
        names = tuple(columns[place] for place in others)
    return arrays, names


def stacked(places: Iterable[int], columns: Sequence[str], column: Callable[[int], Any], name: str) -> Array:
    """Columns side by side."""
    made = []
    for place in places:
        values = np.asarray(column(place))
        if values.dtype.kind == "O":
            with_none = [math.nan if value is None else value for value in values.tolist()]
            values = np.asarray(with_none) if all(isinstance(value, int | float) for value in with_none) else values
        if values.dtype.kind not in "fiub":
            raise MacsError(
                f"The column {columns[place]!r} of {name} does not hold numbers; leave it out or encode it."
            )
        made.append(values)
    return np.stack(made, axis=1)


def nested(values: Any, what: str) -> Array:
    """A column whose entries are lists of numbers, all equally long."""
    rows = values if isinstance(values, list) else np.asarray(values).tolist()
    missing = [math.nan] * next((len(row) for row in rows if row is not None), 1)  # in place of a row that is not there
    try:
        return matrix(np.stack([np.asarray(missing if row is None else row, np.float64) for row in rows]), what)
    except (ValueError, TypeError):
        raise MacsError(f"{what} must hold lists of numbers, all equally long.") from None
