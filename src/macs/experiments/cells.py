"""Cells: trainings that are done once, and found again by all that they depend on.

    ROOT/NAME/KEY.json                          what the cell depends on, whose hash is KEY, and its TrainingSpec
    ROOT/NAME/KEY/                              the run folder, as in macs.training.runs
    ROOT/NAME/KEY/confidences-SCORE-SET.npz     what the trained network says of an image set, known by its fingerprint

A changed hyper-parameter or changed images make another cell beside the first, and nothing is ever overwritten. A cell
that was interrupted goes on after its last finished epoch, and one more test set costs one pass of a trained network.
"""

import copy
import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from macs.core.errors import MacsError
from macs.core.files import write_atomically, write_text
from macs.core.version import __version__
from macs.data import ImageSet
from macs.data.fingerprint import fingerprint, short_hash
from macs.experiments.locks import locked
from macs.metrics import FprRule
from macs.training.runs import Epoch, RunFolder
from macs.training.spec import TrainingSpec, differences

if TYPE_CHECKING:
    from torch import nn

    from macs.evaluation import Evaluation
    from macs.training.sources import Held

FORMAT = 3  # of what a cell's folder holds
Kept = tuple[NDArray[np.bool_], NDArray[np.float32]]  # is each image's predicted class right, and its confidence


@dataclass(frozen=True)
class Examination:
    """What a trained network is measured on: held-out images to choose by, and perhaps test images to report on."""

    val: ImageSet
    val_outliers: ImageSet
    test: ImageSet | None = None
    ood: Mapping[str, ImageSet] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What one training came to."""

    validation: "Evaluation"
    test: "Evaluation | None"
    confidences: dict[str, NDArray[np.float32]]  # of the ID test images, under "id", and of each OOD set
    mcd: tuple[float, ...]  # mean confidence difference on the training images, one per epoch
    weights: str  # equal for equal networks, bit for bit

    def of(self, which: str) -> "Evaluation":
        """The evaluation on `validation` or on `test` images."""
        found: Evaluation | None = self.validation if which == "validation" else self.test
        if found is None:
            raise MacsError("There are no test results here; give test images and OOD sets.")
        return found


@dataclass(frozen=True)
class Cell:
    """One training and its place: plain values, so that any process can run it."""

    root: Path
    name: str
    spec: TrainingSpec
    trained: bool = False  # the starting weights are the result: they were trained elsewhere, nobody knows how

    @cached_property
    def depends(self) -> dict[str, Any]:
        """All that decides what the training gives."""
        from macs.core.devices import best_device, use_bf16

        bf16 = use_bf16(self.spec.recipe.precision, best_device())
        versions = {"format": FORMAT, "macs": __version__, "trained": self.trained}
        return {**versions, **self.spec.identity(), "precision": "bf16" if bf16 else "float32"}

    @cached_property
    def key(self) -> str:
        return short_hash(json.dumps(self.depends, sort_keys=True).encode())

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / self.name / self.key)

    @property
    def finished(self) -> bool:
        return self.folder.finished

    def run(self, data: Path | None, held: "Held", progress: bool = True) -> None:
        """Train, or go on with an interrupted training; nothing is done where the cell is finished.

        `data` is the root of the datasets; what is `held` need not be loaded. While another process trains the cell,
        this one waits for it.
        """
        from macs import nets, training
        from macs.training.sources import load_start

        place = self.root / self.name
        with locked(place / f".{self.key}.lock", f"Another process trains {self.name}; waiting for it ..."):
            if self.finished:
                return
            record = {"depends": self.depends, "spec": self.spec.as_dict()}
            write_text(place / f"{self.key}.json", json.dumps(record, indent=2))
            if self.trained:
                nets.save(load_start(self.spec, held), self.folder.net_file, class_names=self.spec.classes)
            else:
                training.run(self.spec, self.folder.path, data, held=held, resume=True, progress=progress)

    def examine(self, on: Examination, held: "Held", fpr_rule: FprRule = "first", progress: bool = True) -> Result:
        """Measure the finished cell. Sets that it has been shown before need no network."""
        from macs import methods
        from macs.evaluation import Protocol, measure

        score = methods.build(self.spec.method, self.spec.recipe.options).score
        net = cache(lambda: self.net(held))
        protocol = Protocol(fpr_rule=fpr_rule)

        def confidences(images: ImageSet) -> Kept:
            return self._confidences(images, score, net, progress)

        (correct, known), (_, unknown) = confidences(on.val), confidences(on.val_outliers)
        validation = measure(on.val.name, correct, known, {"outliers": unknown}, score, protocol)
        test, kept = None, {}
        if on.test is not None and on.ood:
            correct, known = confidences(on.test)
            others = {name: confidences(images)[1] for name, images in on.ood.items()}
            test = measure(on.test.name, correct, known, others, score, protocol)
            kept = {"id": known, **others}
        return Result(
            validation=validation,
            test=test,
            confidences=kept,
            mcd=tuple(epoch.mcd for epoch in self.epochs()),
            weights=short_hash(self.folder.net_file.read_bytes()),
        )

    def epochs(self) -> list[Epoch]:
        """What happened in each epoch, as the run folder tells it; nothing for weights that were trained elsewhere."""
        return self.folder.epochs() if self.folder.metrics_file.exists() else []

    def others(self) -> list[str]:
        """For each cell of this name that is not this one, how it differs."""
        found = []
        for file in sorted((self.root / self.name).glob("*.json")):
            if file.stem != self.key:
                theirs = _told(file)
                words = differences(theirs, self.depends) if theirs else ["it does not say what it depends on"]
                found.append("; ".join(words))
        return found

    def _confidences(self, images: ImageSet, score: str, net: "Callable[[], nn.Module]", progress: bool) -> Kept:
        """What the network says of a set: from disk where it has been asked before."""
        file = self.folder.path / f"confidences-{score}-{fingerprint(images)}.npz"
        if not file.exists():
            from macs import scores

            answers = scores.ask(net(), images, score, self.spec.recipe.precision, progress)
            correct = answers.predictions == (-1 if images.labels is None else images.labels)
            arrays = {"name": np.array(images.name), "correct": correct, "values": answers.confidences}
            write_atomically(file, lambda path: _save(path, arrays))
        try:
            with np.load(file) as kept:
                correct, values = kept["correct"], kept["values"]
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error):
            correct, values = np.empty(0, bool), np.empty(0, np.float32)
        if not correct.shape == values.shape == (len(images),):
            raise MacsError(f"{file} is damaged; delete it, and it is made again.")
        return correct, values

    def net(self, held: "Held") -> "nn.Module":
        """The trained network, on the best device."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from macs import nets
        from macs.core.devices import best_device

        file, start = self.folder.net_file, held.nets.get(self.spec.start.weights)
        try:
            if start is None:
                net = nets.load(file, self.spec.net, len(self.spec.classes))
            else:  # it may be of a class that only its maker can build
                net = copy.deepcopy(start)
                net.load_state_dict(load_file(file))
        except (MacsError, SafetensorError, RuntimeError, OSError) as error:
            why = str(error).splitlines()[0].rstrip(".")
            raise MacsError(f"Cannot read {file} ({why}); delete its folder to train it again.") from None
        return net.to(best_device())


def _told(file: Path) -> dict[str, Any]:
    """What a cell says that it depends on; nothing if that cannot be read."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    depends = told.get("depends") if isinstance(told, dict) else None
    return depends if isinstance(depends, dict) else {}


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:  # given a path, numpy would add a suffix
        np.savez_compressed(file, allow_pickle=False, **arrays)
