"""A run folder: the record of a training, its metrics per epoch, and the weights.

    recipe.toml       images, network, starting weights, method and recipe, as a TrainingSpec; written first
    metrics.jsonl     one line per epoch; when the training has ended, each says whether its weights are kept
    state.pt          everything needed to continue after the last finished epoch
    net.safetensors   the trained network, written last: a folder that has it is finished

Each file is replaced whole, so that a run that is killed at any moment can be resumed from its last finished epoch.
`load_run` finds the trained network of a finished run, or of a checkpoint and its description.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from macs.core.errors import MacsError
from macs.core.files import (
    input_file,
    kind_of,
    output_file,
    reason,
    refuse_bomb,
    remove_abandoned,
    same_path,
    user_path,
    write_atomically,
    write_text,
)
from macs.core.settings import check
from macs.data.loading import Place, divided_as, load
from macs.data.preparation import DEFAULT, Preparation
from macs.data.spec import MEMORY
from macs.training.spec import (
    TrainingSpec,
    differences,
    is_from_library,
    preparation_named,
    refuse_unnamed,
)

if TYPE_CHECKING:
    from torch import nn

    from macs.data import ImageSet


CLIP, PRETRAINED = "clip/", "pretrained"  # a network whose classes are words, and the word for a library's weights


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch, on the training images unless named otherwise.

    Confidences are largest softmax probabilities.
    """

    epoch: int
    loss: float
    accuracy: float
    confidence_in: float
    confidence_out: float
    mcd: float
    lr: float
    seconds: float
    images_per_second: float
    validation_accuracy: float | None = None  # after the epoch, on validation images
    validation_auroc: float | None = None  # of the method's own score, on these and validation outliers
    kept: bool | None = None  # whether the weights after this epoch are kept; None until the training has ended

    @property
    def merit(self) -> float:
        """The mean of validation accuracy and validation AUROC, by which the best epoch is chosen."""
        return fmean(value for value in (self.validation_accuracy, self.validation_auroc) if value is not None)


def kept_epoch(history: Sequence[Epoch], keep: Literal["last", "best"]) -> Epoch:
    """Return the epoch whose weights are kept: the first, if several are equally good."""
    return history[-1] if keep == "last" else max(history, key=lambda epoch: epoch.merit)


def epochs_from(rows: Any) -> list[Epoch]:
    """Return epochs from their stored rows, which must be complete and consecutive; a MacsError says what is wrong."""
    try:
        epochs = [Epoch(**row) for row in rows]
    except TypeError:
        raise MacsError("they are not the epochs of a training") from None
    for epoch in epochs:
        check(epoch)
    if [epoch.epoch for epoch in epochs] != list(range(1, len(epochs) + 1)):
        raise MacsError("epochs are missing")
    return epochs


@dataclass(frozen=True)
class RunFolder:
    path: Path

    @property
    def recipe_file(self) -> Path:
        return self.path / "recipe.toml"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def state_file(self) -> Path:
        return self.path / "state.pt"

    @property
    def net_file(self) -> Path:
        return self.path / "net.safetensors"

    @property
    def finished(self) -> bool:
        return self.net_file.exists()

    @property
    def spec(self) -> TrainingSpec:
        """The spec of the training."""
        return TrainingSpec.from_toml(self.recipe_file)

    def finished_spec(self) -> TrainingSpec:
        """Return the spec; raise if the run is not finished."""
        spec = self.spec
        if not self.finished:
            raise MacsError(f"The run in {self.path} is not finished; continue it with --resume.")
        return spec

    def check_writable(self) -> None:
        """Refuse, before any work is done, a folder that a run cannot be written to."""
        if kind_of(user_path(self.path)) not in (None, "a folder"):
            raise MacsError(f"{self.path} is a file; name another folder for the run.")
        if not self.recipe_file.exists():
            output_file(self.recipe_file)
        elif not os.access(self.path, os.W_OK | os.X_OK):
            raise MacsError(f"Cannot write to the run in {self.path}: Permission denied.")

    def claim(self, spec: TrainingSpec, resume: bool) -> None:
        """Reserve the folder for this training, or refuse: no other run is ever overwritten."""
        self.check_writable()
        if not self.recipe_file.exists():
            remove_abandoned(self.recipe_file)  # from a run that was killed at its start
            if self.path.exists() and any(self.path.iterdir()):
                raise MacsError(f"{self.path} holds files that are not a run; name another folder.")
            write_text(self.recipe_file, spec.to_toml())
            return
        recorded = self.spec
        there, here = recorded.identity(), spec.identity()
        if recorded.start.source == spec.start.source == MEMORY:
            there["start"] = here["start"]  # the weights come from the stored state, not from the caller's network
        if other := differences(there, here):
            raise MacsError(f"{self.path} already holds another run ({'; '.join(other)}); name another folder.")
        if not resume:
            raise MacsError(f"{self.path} already holds this run; add --resume to continue it, or name another folder.")
        if self.finished and not self.state_file.exists():
            raise MacsError(f"The run in {self.path} is finished; use it as it is, or name another folder.")

    def save_state(self, state: dict[str, Any]) -> None:
        import torch

        write_atomically(self.state_file, lambda path: torch.save(state, path))
        self.save_metrics(state["history"])

    def save_metrics(self, history: Sequence[dict[str, Any]]) -> None:
        write_text(self.metrics_file, "".join(json.dumps(epoch) + "\n" for epoch in history))

    def load_state(self) -> Any:
        """Return the last state that `save_state` wrote, unchecked."""
        import torch

        file = input_file(self.state_file, "state of a run")
        try:
            refuse_bomb(file)
            return torch.load(file, map_location="cpu", weights_only=True)
        except OSError as error:
            raise MacsError(f"Cannot read {file}: {reason(error)}.") from None
        except MacsError:
            raise
        except Exception:  # damaged files make torch raise nearly anything
            raise MacsError(f"{file} is damaged; start a new run in another folder.") from None

    def epochs(self) -> list[Epoch]:
        """Return the metrics of each epoch, from metrics.jsonl."""
        file = input_file(self.metrics_file, "record of epochs")
        try:
            return epochs_from([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])
        except MacsError as error:
            raise MacsError(f"Cannot read the epochs in {file}: {str(error).rstrip('.')}.") from None
        except (ValueError, RecursionError):
            raise MacsError(f"Cannot read the epochs in {file}: not every line is JSON.") from None


def run_name(id: str, *parts: str) -> str:
    """Return a name for a run folder from the ID set and other distinguishing parts; always a single path component."""
    folder = re.split(r"[/\\]", id.rstrip("/\\"))[-1]
    if folder in ("", ".", "..", "~"):
        folder = Path(id).expanduser().resolve().name or "images"
    return re.sub(r'[<>:"/\\|?*\s\x00-\x1f]+', ".", "-".join([folder[:40], *parts])).lstrip(".-")


@dataclass(frozen=True)
class TrainedNetwork:
    """Where a network is stored and what it was trained on; the network is loaded on demand."""

    net: str
    checkpoint: Path
    id: str  # its ID set
    preparation: Preparation = DEFAULT  # of its input images
    normalisation: str | None = None
    spec: TrainingSpec | None = None  # of its run

    @property
    def trained_on(self) -> str | None:
        """The ID set of its run; None if that is code that only the run's record names."""
        source = None if self.spec is None else self.spec.train.source
        return None if source and source != self.id and ":" in source and Place(source).kind == "dataset" else source

    @property
    def classes(self) -> tuple[str, ...]:
        """Its class names, if its file has them."""
        from macs import nets

        return nets.class_names(self.checkpoint)

    @property
    def score(self) -> str:
        """The score that its method's authors use for detection."""
        from macs import methods

        if self.spec is None:
            return "mcm" if self.zero_shot else "msp"
        if ":" in self.spec.method:
            raise MacsError(
                f"The run was trained by a method of your own, {self.spec.method}, which is not imported because the "
                "run's record names it; choose a score with --score."
            )
        return methods.build(self.spec.method, self.spec.recipe.options).score

    @property
    def zero_shot(self) -> bool:
        """Whether it is CLIP, whose classes are words, with its own weights."""
        return self.net.startswith(CLIP) and str(self.checkpoint) == PRETRAINED

    @property
    def divided(self) -> bool:
        """Whether its ID set has no splits, so that its own training has divided the set."""
        return self.spec is not None and bool(self.spec.train.parts) and trained_on_undivided(self.spec, self.id)

    def images(self, split: str, root: str | Path | None = None) -> "ImageSet":
        """Return the train, val or test images of its ID set; see `load_apart`."""
        return load_apart(self.spec, self.id, split, root, self.preparation)

    def images_to_fit(self, root: str | Path | None = None) -> "ImageSet":
        """Return the training images of its ID set; raise for another set without splits, which is a test set."""
        if Place(self.id).undivided and not self.divided:
            raise MacsError(f"{self.id} is not divided into train and test; put its images into two such folders.")
        return self.images("train", root)

    def held_out_images(self, root: str | Path | None = None) -> "ImageSet | None":
        """Return the validation images of its ID set, where there are some."""
        return self.images("val", root) if self.divided or "val" in Place(self.id).splits else None

    def network(self, classes: int | None = None, names: Sequence[str] = ()) -> "nn.Module":
        """Return the network, on the best device; the names of the classes are for one whose classes are words."""
        from macs import nets
        from macs.core.devices import best_device
        from macs.training.checks import warn_of_normalisation

        if self.zero_shot:
            from macs.nets.from_clip import zero_shot

            return zero_shot(self.net, names).to(best_device())
        warn_of_normalisation(self.id, self.checkpoint, self.normalisation)
        preparation = self.preparation if is_from_library(self.net) else None
        network = nets.load_weights(self.checkpoint, self.net, classes, None, self.normalisation, preparation)
        nets.set_geometry(network, self.preparation)
        return network.to(best_device())

    def outliers(self, data: Path | None) -> "ImageSet | None":
        """Return the outliers that it was trained with, where its record names them and they are still there."""
        spec = None if self.spec is None else self.spec.outliers
        if spec is None or spec.source == MEMORY:
            return None
        try:
            refuse_unnamed(self.checkpoint, "--outliers", spec.source)
            return spec.load(data, self.preparation)
        except MacsError:
            return None

    def network_for(self, images: "ImageSet") -> "nn.Module":
        """Return the network, on the best device; raise if the images have other classes."""
        from macs.data.compatibility import same_classes

        same_classes(images, self.classes, f"{self.checkpoint} was trained for")
        return self.network(len(images.classes) or None, images.classes)


def load_run(
    run: Path | None,
    *,
    net: str | None = None,
    checkpoint: Path | None = None,
    id: str | None = None,
    size: int | None = None,
    normalisation: str | None = None,
    images: str = "--id",
) -> TrainedNetwork:
    """The network of a finished run, where other arguments override the run's own; without a run they are required.

    `images` is the command line's name for `id`, used in messages.
    """
    if run is None:
        if checkpoint is None and net is not None and net.startswith(CLIP):
            checkpoint = Path(PRETRAINED)
        if net is None or checkpoint is None or id is None:
            raise MacsError(f"Name a run folder, or give --net, --checkpoint and {images}.")
        return TrainedNetwork(net, checkpoint, id, preparation_named(net, checkpoint, size), normalisation)
    folder = RunFolder(run)
    spec = folder.finished_spec()
    if id is None and spec.train.source == MEMORY:
        raise MacsError(f"The network in {run} was trained on images in memory; name ID images with {images}.")
    if net is None:
        refuse_unnamed(folder.recipe_file, "--net", spec.net)
    if id is None:
        refuse_unnamed(folder.recipe_file, images, spec.train.source)
    return TrainedNetwork(
        net or spec.net,
        checkpoint or folder.net_file,
        spec.train.source if id is None else id,
        spec.preparation if size in (None, spec.preparation.size) else Preparation(size),
        normalisation,
        spec,
    )


def load_apart(
    spec: TrainingSpec | None, id: str, split: str, root: str | Path | None, preparation: Preparation
) -> "ImageSet":
    """Return the train, val or test images of an ID set, for a network that was trained as `spec` says.

    If it was trained on this very set, and the set has no splits, they are the part that it was trained on and the two
    parts that the training held out.
    """
    if spec is None or not trained_on_undivided(spec, id):
        return load(id, split, root=root, preparation=preparation)
    if not spec.train.parts or any(part.side == "chosen" for part in spec.train.parts):
        raise MacsError(f"The network was trained on all images of {id}; name other ID images with --id.")
    return divided_as(spec.train, root, spec.preparation)[split].prepared(preparation)


def trained_on_undivided(spec: TrainingSpec, id: str) -> bool:
    """Return whether an ID set is the one that a network was trained on and has no splits."""
    place = Place(id)
    return place.undivided and (id == spec.train.source or same_path(place.path, spec.train.source))
