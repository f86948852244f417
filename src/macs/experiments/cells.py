"""Cells: trainings that are done once, and found again by everything that they depend on.

    ROOT/NAME/KEY.json                         what the cell depends on (KEY is its hash), and its TrainingSpec
    ROOT/NAME/KEY/                             the run folder, as in macs.training.runs
    ROOT/NAME/KEY/confidences-SCORE-SET.npz    the trained network's confidences on the image set with fingerprint SET

A changed hyper-parameter or changed images make another cell beside the first, and nothing is ever overwritten. A cell
that was interrupted continues after its last finished epoch, and one more test set costs one pass of a trained network.

Engines train and measure cells; they decide where, and how many at a time. An engine takes the next cell when it has
room for it and yields results in any order, as they come. A cell that fails stops neither the engine nor other cells.
"""

import copy
import json
import logging
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from macs.core import __version__
from macs.core.errors import MacsError, first_line
from macs.core.files import check_unpacked, locked, write_atomically, write_text
from macs.data import ImageSet
from macs.data.spec import fingerprint, short_hash
from macs.metrics import FprRule
from macs.training.runs import Epoch, RunFolder
from macs.training.sources import NOTHING, Held, load_start
from macs.training.spec import TrainingSpec, differences

if TYPE_CHECKING:
    from torch import nn

    from macs.evaluation import Evaluation

log = logging.getLogger(__name__)

FORMAT = 3  # version of a cell's files
Scored = tuple[NDArray[np.bool_], NDArray[np.float32]]  # per image: is the predicted class right, and the confidence


@dataclass(frozen=True)
class Examination:
    """The images that a trained network is measured on: held-out ones to choose by, and perhaps test images."""

    val: ImageSet
    val_outliers: ImageSet
    test: ImageSet | None = None
    ood: Mapping[str, ImageSet] = field(default_factory=dict)
    near: Mapping[str, ImageSet] = field(default_factory=dict)  # OOD sets that stay out of the means over `ood`


@dataclass(frozen=True)
class Result:
    """The result of one training."""

    validation: "Evaluation"
    test: "Evaluation | None"
    confidences: dict[str, NDArray[np.float32]]  # of the ID test images, under "id", and of each OOD set
    mcd: tuple[float, ...]  # mean confidence difference on the training images, one per epoch
    weights: str  # hash of the weights: the same only for networks that are equal bit for bit
    near: "Evaluation | None" = None

    def of(self, which: str) -> "Evaluation":
        """Return the evaluation on `validation`, `test` or `near` images."""
        found: Evaluation | None = getattr(self, which)
        if found is None:
            raise MacsError("There are no test results here; give test images and OOD sets.")
        return found


@dataclass(frozen=True)
class Cell:
    """One training and where it is stored, as plain values, so that any process can run it."""

    root: Path
    name: str
    spec: TrainingSpec
    trained: bool = False  # the starting weights are the result: they were trained elsewhere, in an unknown way

    @cached_property
    def depends(self) -> dict[str, Any]:
        """Everything that determines the result of the training."""
        from macs.core.devices import best_device, use_bf16

        bf16 = use_bf16(self.spec.recipe.precision, best_device())
        versions = {"format": FORMAT, "macs": __version__, "trained": self.trained}
        return {**versions, **self.spec.identity(), "precision": "bf16" if bf16 else "float32"}

    @cached_property
    def key(self) -> str:
        return key_of(self.depends)

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / self.name / self.key)

    @property
    def finished(self) -> bool:
        return self.folder.finished

    def run(
        self,
        data: Path | None,
        held: Held,
        progress: bool = True,
        on_epoch: "Callable[[Epoch, nn.Module], object] | None" = None,
    ) -> None:
        """Train, or continue an interrupted training; if the cell is finished, do nothing.

        `data` is the root of the datasets; images and networks that are `held` in memory are not loaded. After each
        epoch, `on_epoch` is called. While another process trains the cell, this one waits for it.
        """
        from macs import nets, training

        parent = self.root / self.name
        with locked(parent / f".{self.key}.lock", f"Another process trains {self.name}; waiting for it ..."):
            if self.finished:
                log.info("%s was trained before: %s", self.name, self.folder.path)
                return
            record = {"depends": self.depends, "spec": self.spec.as_dict()}
            write_text(parent / f"{self.key}.json", json.dumps(record, indent=2))
            if self.trained:
                nets.save(load_start(self.spec, held), self.folder.net_file, class_names=self.spec.classes)
            else:
                run = self.folder.path
                training.run(self.spec, run, data, held=held, resume=True, progress=progress, on_epoch=on_epoch)

    def examine(self, on: Examination, held: Held, fpr_rule: FprRule = "first", progress: bool = True) -> Result:
        """Measure the finished cell; sets that were scored before need no network."""
        from macs import evaluation, methods

        score = methods.build(self.spec.method, self.spec.recipe.options).score
        net = cache(lambda: self.net(held))
        protocol = evaluation.Protocol(fpr_rule=fpr_rule)

        def scored(images: ImageSet) -> Scored:
            return self._scored(images, score, net, progress)

        (correct, known), (_, unknown) = scored(on.val), scored(on.val_outliers)
        validation = evaluation.measure(on.val.name, correct, known, {"outliers": unknown}, score, protocol)
        test, near, confidences = None, None, {}
        if on.test is not None and on.ood:
            correct, known = scored(on.test)
            ood, near_ood = ({name: scored(images)[1] for name, images in sets.items()} for sets in (on.ood, on.near))
            test = evaluation.measure(on.test.name, correct, known, ood, score, protocol)
            near = evaluation.measure(on.test.name, correct, known, near_ood, score, protocol) if near_ood else None
            confidences = {"id": known, **ood, **near_ood}
        return Result(
            validation=validation,
            test=test,
            confidences=confidences,
            mcd=tuple(epoch.mcd for epoch in self.epochs()),
            weights=short_hash(self.folder.net_file.read_bytes()),
            near=near,
        )

    def epochs(self) -> list[Epoch]:
        """Return the epochs that the run folder records; none for weights that were trained elsewhere."""
        return self.folder.epochs() if self.folder.metrics_file.exists() else []

    def others(self) -> list[str]:
        """Return how each other cell of this name differs from this one, in words."""
        descriptions = []
        for file in sorted((self.root / self.name).glob("*.json")):
            if file.stem != self.key:
                theirs = _depends_in(file)
                words = differences(theirs, self.depends) if theirs else ["it does not say what it depends on"]
                descriptions.append("; ".join(words))
        return descriptions

    def _scored(self, images: ImageSet, score: str, net: "Callable[[], nn.Module]", progress: bool) -> Scored:
        """Return the network's answers on a set, read from disk if it was scored before."""
        file = self.folder.path / f"confidences-{score}-{fingerprint(images)}.npz"
        if file.exists():
            log.info("%s was scored before: %s", images.name, file)
        else:
            from macs import scores

            answers = scores.ask(net(), images, score, self.spec.recipe.precision, progress)
            correct = answers.index == (-1 if images.labels is None else images.labels)
            arrays = {"name": np.array(images.name), "correct": correct, "values": answers.confidence}
            save_arrays(file, arrays)
        try:
            check_unpacked(file, 2**20 + 16 * len(images))
            with np.load(file) as saved:
                correct, values = saved["correct"], saved["values"]
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
            correct, values = np.empty(0, bool), np.empty(0, np.float32)
        if not correct.shape == values.shape == (len(images),):
            raise MacsError(f"{file} is damaged; delete it, and it will be computed again.")
        return correct, values

    def net(self, held: Held) -> "nn.Module":
        """Return the trained network, on the best device."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        from macs import nets
        from macs.core.devices import best_device

        file, start = self.folder.net_file, held.nets.get(self.spec.start.weights)
        try:
            if start is None:
                net = nets.load(file, self.spec.net, len(self.spec.classes))
            else:  # it may be of a class that only the caller can build
                net = copy.deepcopy(start)
                net.load_state_dict(load(file.read_bytes()))
        except (MacsError, SafetensorError, RuntimeError, OSError) as error:
            raise MacsError(f"Cannot read {file} ({first_line(error)}); delete its folder to train it again.") from None
        return net.to(best_device())


def _depends_in(file: Path) -> dict[str, Any]:
    """Return what a cell depends on, according to its record; empty if that cannot be read."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    depends = record.get("depends") if isinstance(record, dict) else None
    return depends if isinstance(depends, dict) else {}


def key_of(depends: Mapping[str, Any]) -> str:
    """Return the hash of everything that a cell depends on."""
    return short_hash(json.dumps(depends, sort_keys=True).encode())


def save_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays as a compressed .npz, completely or not at all."""

    def save(path: Path) -> None:
        with path.open("wb") as opened:  # numpy would add a suffix to a path
            np.savez_compressed(opened, allow_pickle=False, **arrays)

    write_atomically(file, save)


def spread(images: ImageSet, count: int) -> ImageSet:
    """Return at most `count` images, spread evenly over the set, or all of them if the count is 0."""
    if not 0 < count < len(images):
        return images
    return images.subset(np.linspace(0, len(images) - 1, count).astype(np.int64))


def for_all(path: Path) -> bool:
    """Return whether the path is one file of weights or the folder of one run, not a folder of files ID-NET.pt."""
    return path.is_file() or (path / "net.safetensors").is_file()


def checkpoint_of(path: Path, id: str, net: str) -> Path | None:
    """Return the weights of one network: the path if it stands for all networks, else its file ID-NET.pt, if any."""
    if for_all(path):
        return path
    files = (path / f"{id}-{net}{suffix}" for suffix in (".pt", ".pth", ".safetensors"))
    return next((file for file in files if file.is_file()), None)


class Done(NamedTuple):
    """A cell with its result, or with the error that made it fail."""

    cell: Cell
    result: Result | None
    error: Exception | None = None

    def value(self) -> Result:
        """Return the result; if the cell failed, its error is raised."""
        if self.result is None:
            raise self.error or AssertionError("neither a result nor an error")
        return self.result


class Engine(Protocol):
    def run(
        self, cells: Iterable[Cell], on: Examination, held: Held = NOTHING, fpr_rule: FprRule = "first"
    ) -> Iterator[Done]:
        """Train every cell that is not finished, and measure it; images and networks that are held are not loaded."""


@dataclass
class SerialEngine:
    """One cell after the other, in this process."""

    data: Path | None = None  # root of the datasets that cells name
    progress: bool = True

    def run(
        self, cells: Iterable[Cell], on: Examination, held: Held = NOTHING, fpr_rule: FprRule = "first"
    ) -> Iterator[Done]:
        for cell in cells:
            try:
                cell.run(self.data, held, self.progress)
                done = Done(cell, cell.examine(on, held, fpr_rule, self.progress))
            except Exception as error:  # one failing cell must not end an experiment that takes days
                done = Done(cell, None, error)
            yield done
