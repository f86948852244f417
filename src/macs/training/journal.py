"""The journal of a training: its epochs so far, weights that it may return to at the end, and the run folder."""

import copy
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch import nn

from macs import nets
from macs.core.processes import ALONE, Processes
from macs.data import ImageSet
from macs.methods import Method
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder, kept_epoch
from macs.training.state import BEST, START, Weights, images_of, restore, state_of

log = logging.getLogger(__name__)


class Journal:
    """What is kept of a training, in memory and, if there is a folder, on disk after every epoch."""

    def __init__(
        self,
        folder: RunFolder | None,
        net: nn.Module,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        train: ImageSet,
        others: Sequence[ImageSet | None],  # outliers and validation images
        processes: Processes = ALONE,  # only the first writes to the folder
    ) -> None:
        self.folder, self.net, self.optimizer, self.recipe = folder if processes.first else None, net, optimizer, recipe
        self.processes = processes.count
        self.images = images_of(train, *others) if folder else {}
        self.history: list[Epoch] = []
        self.aside: dict[str, Weights] = {}
        if recipe.keep == "best":
            self.aside[BEST] = {}
        if recipe.start_share:
            self.aside[START] = copy.deepcopy(net.state_dict())

    def resumed(self, method: Method) -> Method | None:
        """Restore what the folder holds, and return the method as it was; None if there is nothing to restore."""
        if self.folder is None or not self.folder.state_file.exists():
            return None
        method, self.history, self.aside = restore(
            self.folder, self.net, self.optimizer, method, self.recipe, self.images, self.aside, self.processes
        )
        log.info("continuing %s after %d epochs", self.folder.path, len(self.history))
        return method

    def save(self, method: Method) -> None:
        """Write everything that is needed to continue from here."""
        if self.folder:
            state = state_of(self.net, self.optimizer, method, self.history, self.images, self.aside, self.processes)
            self.folder.save_state(state)

    def add(self, epoch: Epoch, method: Method) -> None:
        """Add an epoch that has just ended."""
        self.history.append(epoch)
        if BEST in self.aside and kept_epoch(self.history, "best") is epoch:
            self.aside[BEST] = copy.deepcopy(self.net.state_dict())
        self.save(method)
        log.debug("epoch %d took %.2f s", epoch.epoch, epoch.seconds)

    def close(self, classes: Sequence[str]) -> list[Epoch]:
        """Leave the network with the weights that are kept, write them, and return all epochs."""
        kept = kept_epoch(self.history, self.recipe.keep)
        history = [replace(epoch, kept=epoch is kept) for epoch in self.history]
        if BEST in self.aside:
            self.net.load_state_dict(self.aside[BEST])
        if START in self.aside:
            self.net.load_state_dict(averaged(self.aside[START], self.net.state_dict(), self.recipe.start_share))
        if self.folder and not self.folder.finished:
            self.folder.save_metrics([asdict(epoch) for epoch in history])
            nets.save(self.net, self.folder.net_file, class_names=classes)
        if self.folder:
            nets.remember_origin(self.net, str(self.folder.net_file.resolve()))
        return history


def averaged(start: Weights, end: Weights, share: float) -> Weights:
    """share * start + (1 - share) * end, for batch norm's statistics, too; whole numbers, its counters, are the end's.

    WiSE-FT: Wortsman et al., Robust fine-tuning of zero-shot models, CVPR 2022.
    """
    return {
        name: end[name] + share * (start[name] - end[name]) if end[name].is_floating_point() else end[name]
        for name in end
    }
