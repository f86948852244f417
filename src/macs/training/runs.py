"""A run folder: the record of a training, its metrics per epoch, and the weights.

    recipe.toml       images, network, starting weights, method and recipe, as a TrainingSpec; written first
    metrics.jsonl     one line per epoch; when the training has ended, each says whether its weights are kept
    state.pt          everything needed to continue after the last finished epoch
    net.safetensors   the trained network, written last: a folder that has it is finished

Each file is replaced whole, so that a run that is killed at any moment can be resumed from its last finished epoch.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from macs.core.errors import MacsError
from macs.core.files import (
    input_file,
    kind_of,
    output_file,
    reason,
    refuse_bomb,
    remove_abandoned,
    user_path,
    write_atomically,
    write_text,
)
from macs.core.settings import check
from macs.data.spec import MEMORY
from macs.training.options import TrainingOptions, is_record
from macs.training.spec import TrainingSpec, differences, located, read_toml


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
    """The epoch whose weights are kept: the first, if several are equally good."""
    return history[-1] if keep == "last" else max(history, key=lambda epoch: epoch.merit)


def epochs_from(rows: Any) -> list[Epoch]:
    """Epochs from their stored rows, which must be complete and consecutive; a MacsError says what is wrong."""
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
        """The spec of the training. Older runs recorded only names, as flat options."""
        values = read_toml(self.recipe_file)
        try:
            if is_record(values):
                return TrainingSpec.from_dict(values)
            return TrainingOptions().updated(values).unverified()
        except MacsError as error:
            raise located(self.recipe_file, error) from None

    def finished_spec(self) -> TrainingSpec:
        """The spec of a finished run, or an error."""
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
        if not recorded.complete:
            raise MacsError(
                f"The run in {self.path} was written by a version of macs that did not record its images and starting "
                "weights, so it cannot be resumed; use it as it is, or name another folder."
            )
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
        """The last state that `save_state` wrote, unchecked."""
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
        """The metrics of each epoch, from metrics.jsonl."""
        file = input_file(self.metrics_file, "record of epochs")
        try:
            return epochs_from([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()])
        except MacsError as error:
            raise MacsError(f"Cannot read the epochs in {file}: {str(error).rstrip('.')}.") from None
        except (ValueError, RecursionError):
            raise MacsError(f"Cannot read the epochs in {file}: not every line is JSON.") from None


def run_name(id: str, *parts: str) -> str:
    """A name for a run folder from the ID set and other distinguishing parts; always a single path component."""
    folder = re.split(r"[/\\]", id.rstrip("/\\"))[-1]
    if folder in ("", ".", "..", "~"):
        folder = Path(id).expanduser().resolve().name or "images"
    return re.sub(r'[<>:"/\\|?*\s\x00-\x1f]+', ".", "-".join([folder[:40], *parts])).lstrip(".-")
