"""Checkpointing: what is kept of a training, in memory and in its run folder, and how an interrupted run is restored.

A state that is damaged or belongs to another run is refused with one sentence, before anything is changed.
"""

import copy
import logging
from dataclasses import asdict, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from macs import nets
from macs.core.console import warn
from macs.core.errors import MacsError
from macs.core.processes import ALONE, Processes
from macs.data.spec import fingerprint
from macs.methods import Method
from macs.nets import misfit
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder, epochs_from, kept_epoch
from macs.training.sources import Training

Weights = dict[str, Tensor]
BEST, START = "best", "start"  # names of weights aside: those of the best epoch, and those before the training
PROCESSES = "processes"  # the key for their number in distributed training

log = logging.getLogger(__name__)


class Checkpointer:
    """What is kept of a training, in memory and, if there is a folder, on disk after every epoch."""

    def __init__(
        self,
        folder: RunFolder | None,
        training: Training,
        optimizer: torch.optim.Optimizer,
        processes: Processes = ALONE,  # only the first writes to the folder
    ) -> None:
        self.folder, self.optimizer = folder if processes.first else None, optimizer
        self.net, self.recipe, self.processes = training.net, training.recipe, processes.count
        sets = (training.train, training.outliers, training.validation, training.validation_outliers)
        self.images = [fingerprint(images) for images in sets if images is not None] if folder else []
        self.classes = training.train.classes
        self.history: list[Epoch] = []
        self.aside: dict[str, Weights] = {}  # weights other than the present ones, by their names
        if self.recipe.keep == "best":
            self.aside[BEST] = {}
        if self.recipe.start_share:
            self.aside[START] = copy.deepcopy(self.net.state_dict())

    def state(self, method: Method) -> dict[str, Any]:
        """Return everything that is needed to continue the training from here."""
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "method": asdict(cast(Any, method)),
            "history": [asdict(epoch) for epoch in self.history],
            "classes": list(self.classes),
            "images": self.images,
            **self.aside,
            **({} if self.processes == 1 else {PROCESSES: self.processes}),
        }

    def restored(self, method: Method) -> Method | None:
        """Restore what the folder holds, and return the method as it was; None if there is nothing to restore."""
        if self.folder is None or not self.folder.state_file.exists():
            return None
        saved = self.folder.load_state()
        try:
            _check_origin(saved, self.state(method))
            _check_weights(saved["net"], self.net)
            _check_optimizer(saved["optimizer"], self.optimizer)
            history = _history(saved["history"], self.recipe)
            method = _method(method, saved["method"])
            for name in self.aside:
                if history or name != BEST:  # there is no best epoch before the first
                    _check_weights(saved[name], self.net)
        except MacsError as error:
            raise MacsError(
                f"Cannot resume from {self.folder.state_file}: {str(error).rstrip('.')}; start a new run in another "
                "folder."
            ) from None
        if (before := saved.get(PROCESSES, 1)) != self.processes:
            warn(
                f"The run in {self.folder.path} was trained by {before} {'process' if before == 1 else 'processes'} so "
                f"far and continues with {self.processes}: the last digits of its numbers may differ from those "
                "without this change."
            )
        self.net.load_state_dict(saved["net"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.history, self.aside = history, {name: saved[name] for name in self.aside}
        if not self.folder.finished:  # it may have been killed between writing the state and writing the metrics
            self.folder.save_metrics([asdict(epoch) for epoch in history])
        log.info("continuing %s after %d epochs", self.folder.path, len(history))
        return method

    def save(self, method: Method) -> None:
        """Write everything that is needed to continue from here."""
        if self.folder:
            self.folder.save_state(self.state(method))

    def add(self, epoch: Epoch, method: Method) -> None:
        """Add an epoch that has just ended."""
        self.history.append(epoch)
        if BEST in self.aside and kept_epoch(self.history, "best") is epoch:
            self.aside[BEST] = copy.deepcopy(self.net.state_dict())
        self.save(method)
        log.debug("epoch %d took %.2f s", epoch.epoch, epoch.seconds)

    def close(self) -> list[Epoch]:
        """Leave the network with the weights that are kept, write them, and return all epochs."""
        kept = kept_epoch(self.history, self.recipe.keep)
        history = [replace(epoch, kept=epoch is kept) for epoch in self.history]
        if BEST in self.aside:
            self.net.load_state_dict(self.aside[BEST])
        if START in self.aside:
            self.net.load_state_dict(averaged(self.aside[START], self.net.state_dict(), self.recipe.start_share))
        if self.folder and not self.folder.finished:
            self.folder.save_metrics([asdict(epoch) for epoch in history])
            nets.save(self.net, self.folder.net_file, class_names=self.classes)
        if self.folder:
            nets.remember_origin(self.net, str(self.folder.net_file.resolve()))
        return history


def averaged(start: Weights, end: Weights, share: float) -> Weights:
    """Return share * start + (1 - share) * end, including batch-norm statistics; its counters are those of the end.

    WiSE-FT: Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
    """
    return {
        name: end[name] + share * (start[name] - end[name]) if end[name].is_floating_point() else end[name]
        for name in end
    }


def _check_origin(saved: Any, ours: dict[str, Any]) -> None:
    if not isinstance(saved, dict) or saved.keys() - {PROCESSES} != ours.keys() - {PROCESSES}:
        raise MacsError("it is not the state of a run")
    for what in ("classes", "images"):
        if saved[what] != ours[what]:
            raise MacsError(f"it was trained on other {what}")


def _check_weights(saved: Any, net: nn.Module) -> None:
    if not isinstance(saved, dict) or not all(isinstance(value, Tensor) for value in saved.values()):
        raise MacsError("it holds no weights")
    if why := misfit(saved, net.state_dict(), 0):
        raise MacsError(f"it belongs to another network: {why}")
    if not all(value.isfinite().all() for value in saved.values()):
        raise MacsError("its weights are not finite")


def _check_optimizer(saved: Any, optimizer: torch.optim.Optimizer) -> None:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    names = ("exp_avg", "exp_avg_sq") if isinstance(optimizer, torch.optim.AdamW) else ("momentum_buffer",)
    try:
        ours, theirs = optimizer.state_dict()["param_groups"], saved["param_groups"]
        fits = [(group.keys(), group["params"]) for group in ours] == [(g.keys(), g["params"]) for g in theirs]
        for number, entry in saved["state"].items():
            buffers = [entry[name] for name in names]
            fits &= all(buffer is None or buffer.shape == parameters[number].shape for buffer in buffers)
    except (KeyError, IndexError, TypeError, AttributeError):
        fits = False
    if not fits:
        raise MacsError("it belongs to another optimizer")


def _history(saved: Any, recipe: Recipe) -> list[Epoch]:
    history = epochs_from(saved)
    if len(history) > recipe.epochs:
        raise MacsError(f"it has {len(history)} epochs, but the recipe has {recipe.epochs}")
    return history


def _method(method: Method, settings: Any) -> Method:
    try:
        return type(method)(**settings)
    except TypeError:
        raise MacsError("it belongs to another method") from None
