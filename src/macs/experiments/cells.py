"""Cells: trainings that are done once, and found again by all that they depend on.

    ROOT/NAME/KEY.json                    recipe, images, starting weights and version; KEY is their hash
    ROOT/NAME/KEY/                        the run folder, as in macs.training.runs
    ROOT/NAME/KEY/confidences-SET.npz     what the trained network says of an image set; SET is the set's fingerprint

A changed hyper-parameter or changed images make another cell beside the first, and nothing is ever overwritten. A cell
that was interrupted goes on after its last finished epoch, and one more test set costs one pass of a trained network.
"""

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
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
from macs.metrics import FprRule
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder

if TYPE_CHECKING:
    from torch import nn

    from macs.evaluation import Evaluation

FORMAT = 2  # of what a cell's folder holds
Kept = tuple[NDArray[np.bool_], NDArray[np.float32]]  # is each image's predicted class right, and its confidence
WORDS = {"id_images": "other ID images", "outlier_images": "other outliers", "start": "other starting weights"}


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
    """One training; `start` says which weights it starts from and `starting` makes a network that has them."""

    root: Path
    name: str
    recipe: Recipe
    train: ImageSet
    outliers: ImageSet | None
    start: str
    starting: "Callable[[], nn.Module]"

    @cached_property
    def depends(self) -> dict[str, Any]:
        """All that decides what the training gives."""
        return {
            "format": FORMAT,
            "macs": __version__,
            "recipe": asdict(self.recipe),
            "start": self.start,
            "id_images": fingerprint(self.train),
            "outlier_images": fingerprint(self.outliers) if self.outliers is not None else "",
        }

    @cached_property
    def key(self) -> str:
        return short_hash(json.dumps(self.depends, sort_keys=True).encode())

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.root / self.name / self.key)

    @property
    def finished(self) -> bool:
        return self.folder.finished

    def run(self, progress: bool = True) -> None:
        """Train, or go on with an interrupted training; nothing is done where the cell is finished."""
        from macs.training import finetune

        if not self.finished:
            self._describe()
            net, path = self.starting(), self.folder.path
            finetune(net, self.train, self.outliers, recipe=self.recipe, run=path, resume=True, progress=progress)

    def adopt(self) -> None:
        """Keep the starting weights as they are: they were trained elsewhere, with whatever recipe."""
        from macs import nets

        if not self.finished:
            net = self.starting()
            self._describe()
            self.folder.claim(self.recipe, resume=True)
            nets.save(net, self.folder.net_file, class_names=self.train.classes)

    def _describe(self) -> None:
        write_text(self.root / self.name / f"{self.key}.json", json.dumps(self.depends, indent=2))

    def examine(self, on: Examination, fpr_rule: FprRule = "first", progress: bool = True) -> Result:
        """Measure the finished cell. Sets that it has been shown before need no network."""
        from macs import methods
        from macs.evaluation import Protocol, measure

        score, net = methods.build(self.recipe).score, cache(self.net)
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
                found.append("; ".join(_difference(_flat(_told(file)), _flat(self.depends))))
        return found

    def _confidences(self, images: ImageSet, score: str, net: "Callable[[], nn.Module]", progress: bool) -> Kept:
        """What the network says of a set: from disk where it has been asked before."""
        file = self.folder.path / f"confidences-{fingerprint(images)}.npz"
        if not file.exists():
            from macs import scores

            answers = scores.ask(net(), images, score, self.recipe.precision, progress)
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

    def net(self) -> "nn.Module":
        """The trained network, on the best device."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from macs.core.devices import best_device

        net = self.starting()
        try:
            net.load_state_dict(load_file(self.folder.net_file))
        except (SafetensorError, RuntimeError, OSError) as error:
            reason = str(error).splitlines()[0]
            raise MacsError(
                f"Cannot read {self.folder.net_file} ({reason}); delete its folder to train it again."
            ) from None
        return net.to(best_device())


def weights_of(net: "nn.Module") -> str:
    """A hash of a network's weights."""
    from macs import nets

    return nets.weights_hash(net)


def _told(file: Path) -> dict[str, Any]:
    """What a cell says that it depends on; nothing if that cannot be read."""
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) and isinstance(told.get("recipe"), dict) else {}


def _flat(depends: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in depends.items() if key != "recipe"} | depends.get("recipe", {})


def _difference(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """How two cells differ, in words."""
    if not theirs:
        return ["it does not say what it depends on"]
    changed = [key for key in ours if theirs.get(key) != ours[key]]
    if "start" in changed and "checkpoint" in changed:
        changed.remove("checkpoint")  # the name of those weights
    return [WORDS.get(key, f"{key} is {theirs.get(key)!r} there and {ours[key]!r} here") for key in changed]


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    with path.open("wb") as file:  # given a path, numpy would add a suffix
        np.savez_compressed(file, allow_pickle=False, **arrays)
