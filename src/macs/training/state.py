"""The state of a training between two epochs: how it is collected and restored.

A state that is damaged or belongs to another run is refused with one sentence, before anything is changed.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn

from macs.core.console import warn
from macs.core.errors import MacsError
from macs.data import ImageSet
from macs.data.fingerprint import fingerprint
from macs.methods import Method
from macs.nets._checkpoints import misfit
from macs.training.recipe import Recipe
from macs.training.runs import Epoch, RunFolder, epochs_from

Weights = dict[str, Tensor]
BEST, START = "best", "start"  # names of weights aside: those of the best epoch, and those before the training
NO_WEIGHTS: Mapping[str, Weights] = {}
PROCESSES = "processes"  # the key for their number, where several train together


def images_of(train: ImageSet, *others: ImageSet | None) -> dict[str, Any]:
    """The classes and fingerprints that identify a training's images."""
    fingerprints = [fingerprint(images) for images in (train, *others) if images is not None]
    return {"classes": list(train.classes), "images": fingerprints}


def state_of(
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    method: Method,
    history: list[Epoch],
    images: dict[str, Any],
    aside: Mapping[str, Weights] = NO_WEIGHTS,
    processes: int = 1,
) -> dict[str, Any]:
    """Everything needed to continue a training; `aside` are weights other than the present ones, by their names."""
    return {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "method": asdict(cast(Any, method)),
        "history": [asdict(epoch) for epoch in history],
        **images,
        **aside,
        **({} if processes == 1 else {PROCESSES: processes}),
    }


def restore(
    folder: RunFolder,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    method: Method,
    recipe: Recipe,
    images: dict[str, Any],
    aside: Mapping[str, Weights] = NO_WEIGHTS,
    processes: int = 1,
) -> tuple[Method, list[Epoch], dict[str, Weights]]:
    """Restore the state of a run and return its method, its history and its weights aside.

    `aside` says by its names which of them the run has.
    """
    saved = folder.load_state()
    try:
        _check_keys(saved, state_of(net, optimizer, method, [], images, aside))
        _check_images(saved, images)
        _check_weights(saved["net"], net)
        _check_optimizer(saved["optimizer"], optimizer)
        history = _history(saved["history"], recipe)
        method = _method(method, saved["method"])
        for name in aside:
            if history or name != BEST:  # there is no best epoch before the first
                _check_weights(saved[name], net)
    except MacsError as error:
        raise MacsError(
            f"Cannot resume from {folder.state_file}: {str(error).rstrip('.')}; start a new run in another folder."
        ) from None
    if (before := saved.get(PROCESSES, 1)) != processes:
        warn(
            f"The run in {folder.path} was trained by {before} {'process' if before == 1 else 'processes'} so far and "
            f"continues with {processes}: the last digits of its numbers may differ from those without this change."
        )
    net.load_state_dict(saved["net"])
    optimizer.load_state_dict(saved["optimizer"])
    if not folder.finished:  # it may have been killed between writing the state and writing the metrics
        folder.save_metrics([asdict(epoch) for epoch in history])
    return method, history, {name: saved[name] for name in aside}


def _check_keys(saved: Any, ours: dict[str, Any]) -> None:
    if not isinstance(saved, dict) or saved.keys() - {PROCESSES} != ours.keys():
        raise MacsError("it is not the state of a run")


def _check_images(saved: dict[str, Any], images: dict[str, Any]) -> None:
    if saved["classes"] != images["classes"]:
        raise MacsError("it was trained on other classes")
    if saved["images"] != images["images"]:
        raise MacsError("it was trained on other images")


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
