"""One loop for pretraining and fine-tuning.

The randomness of an epoch is a function of the seed and the epoch's number alone. So a run that was killed and resumed
ends with the same bits as one that was not, and no state of a random generator has to be kept.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import nn

from macs import methods, nets
from macs.core.console import warn
from macs.core.devices import best_device, channels_last, device_of, keep_freed_memory, use_bf16
from macs.core.errors import MacsError
from macs.core.files import user_path
from macs.core.settings import unusual
from macs.data import ImageSet
from macs.data.batches import steps_per_epoch, to_float, training_batches
from macs.data.fingerprint import same_pixels
from macs.data.fitness import warn_of_guessing
from macs.data.imageset import require_images
from macs.methods import Batch, Method
from macs.training.progress import Tally, TrainingProgress
from macs.training.recipe import PRETRAINING, Recipe
from macs.training.runs import Epoch, RunFolder
from macs.training.state import images_of, restore, state_of

LOOK_EVERY = 10  # steps between looks at the loss, each of which makes a GPU wait


def pretrain(
    net: nn.Module,
    train: ImageSet,
    *,
    recipe: Recipe = PRETRAINING,
    run: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> list[Epoch]:
    """Train a plain classifier, in place. With `run` the folder keeps recipe, metrics and weights."""
    recipe = replace(recipe, method="msp", margin=None, options={}, batch_out=0, outliers="")
    return _train(net, train, None, recipe, run, resume, progress)


def finetune(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    *,
    method: str | None = None,
    recipe: Recipe | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
) -> list[Epoch]:
    """Fine-tune a classifier on its own images and auxiliary outliers, in place.

    `method` overrides the recipe's. With `run` the folder keeps recipe, metrics and weights; `resume` goes on with a
    run that was interrupted there.
    """
    recipe = recipe or Recipe()
    outliers = None if outliers is None else require_images(outliers, "outliers")
    source = "" if outliers is None else outliers.whole_name
    recipe = replace(recipe, method=method or recipe.method, outliers=source)
    return _train(net, train, outliers, recipe, run, resume, progress)


def _train(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    recipe: Recipe,
    run: str | Path | None,
    resume: bool,
    show: bool,
) -> list[Epoch]:
    train = require_images(train, "training images")
    recipe = replace(recipe, id=train.whole_name, net=nets.name_of(net), size=train.size)
    method = methods.build(recipe)
    if not method.needs_outliers:
        outliers, recipe = None, replace(recipe, outliers="", batch_out=0)
    _check(net, train, outliers, recipe, method)
    folder = RunFolder(user_path(run)) if run is not None else None
    if folder:
        folder.claim(recipe, resume)
    if recipe.dropout is not None:
        nets.set_dropout(net, recipe.dropout, train.size)
    if isinstance(net, nets.Net):
        net.preparation = nets.preparation_for(net, train)

    device = best_device()
    if device.type == "cpu":
        keep_freed_memory()
    bf16 = use_bf16(recipe.precision, device)
    fabric = Fabric(accelerator=device.type, devices=1, precision="bf16-mixed" if bf16 else "32-true")
    channels_last(net)
    optimizer = torch.optim.SGD(
        net.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        nesterov=recipe.momentum > 0,
        fused=device.type in ("cpu", "cuda"),
    )
    model, optimizer = fabric.setup(net, optimizer)

    history: list[Epoch] = []
    images = images_of(train, outliers) if folder else {}
    restored = restore(folder, net, optimizer, method, recipe, images) if folder else None
    if restored:
        method, history = restored
    else:
        first = next(_batches(train, outliers, recipe, 0, fabric.device))
        with nets.running(net, first.images):
            method = method.prepare(model, first)
        if folder:
            folder.save_state(state_of(net, optimizer, method, history, images))

    steps = steps_per_epoch(train, recipe.batch_in, recipe.epoch_size)
    with TrainingProgress(recipe, steps, show) as bar, torch.random.fork_rng():
        for number in range(len(history), recipe.epochs):
            torch.manual_seed(int(np.random.SeedSequence([recipe.seed, number]).generate_state(1)[0]))
            tally = Tally(number)
            model.train()
            for index, batch in enumerate(_batches(train, outliers, recipe, number, fabric.device)):
                rate = _cosine(number * steps + index, recipe.epochs * steps, recipe.lr, recipe.final_lr)
                for group in optimizer.param_groups:
                    group["lr"] = rate
                with nets.running(net, batch.images):
                    step = method.step(model, batch)
                optimizer.zero_grad()
                fabric.backward(step.loss)
                optimizer.step()
                tally.add(step, batch, rate)
                if index % LOOK_EVERY == 0 or index == steps - 1:
                    epoch = tally.summary()
                    if not math.isfinite(epoch.loss):
                        raise MacsError(_diverged(recipe, method, number, index, folder))
                    bar.step(epoch, index + 1)
            history.append(epoch)
            bar.epoch(epoch)
            if folder:
                folder.save_state(state_of(net, optimizer, method, history, images))
    net.eval()
    if folder and not folder.finished:
        nets.save(net, folder.net_file, class_names=train.classes)
    warn_of_guessing(history[-1].accuracy, len(train.classes), f"the training images of {train.name}")
    return history


def starting_net(recipe: Recipe, classes: int) -> nn.Module:
    """The network that a recipe starts from: its checkpoint's weights, else random ones that its seed decides."""
    if recipe.checkpoint:
        return nets.load(recipe.checkpoint, recipe.net, classes=classes, dropout=recipe.dropout)
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        return nets.build(recipe.net, classes=classes, dropout=recipe.dropout)


def _batches(
    train: ImageSet, outliers: ImageSet | None, recipe: Recipe, epoch: int, device: torch.device
) -> Iterator[Batch]:
    """The epoch's batches as pixels in [0, 1] on the device."""
    raw = training_batches(
        train,
        outliers,
        recipe.batch_in,
        recipe.batch_out,
        epoch_size=recipe.epoch_size,
        seed=recipe.seed,
        epoch=epoch,
        augment=recipe.augment,
    )
    for batch in raw:
        yield Batch(to_float(batch.images, device), batch.labels.to(device), to_float(batch.outliers, device))


def _cosine(step: int, total: int, first: float, last: float) -> float:
    return last + (first - last) * (1 + math.cos(math.pi * step / total)) / 2


def _check(net: nn.Module, train: ImageSet, outliers: ImageSet | None, recipe: Recipe, method: Method) -> None:
    """Refuse what could only fail later, or worse, not fail; point out what is likely to be a mistake."""
    if train.labels is None:
        raise MacsError(f"{train.name} has no labels; a folder needs one sub-folder per class.")
    if method.needs_outliers and outliers is None:
        raise MacsError(f"{recipe.method} needs outliers; give a set of images that belong to no class.")
    if method.needs_outliers and recipe.batch_out < 1:
        raise MacsError(f"{recipe.method} needs outliers, so batch_out must be at least 1.")
    if outliers is not None and outliers.size != train.size:
        sizes = f"{train.name} is {train.size} pixels wide and {outliers.name} {outliers.size}"
        raise MacsError(f"Images and outliers must have one size, but {sizes}.")
    if outliers is not None and same_pixels(outliers, train):
        raise MacsError(
            f"The outliers of {outliers.name} are the training images of {train.name} themselves; "
            "give images that belong to no class."
        )
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise MacsError(f"{nets.name_of(net)} has no weights to train: all are frozen, or there are none.")
    with torch.no_grad():
        logits = nets.logits_of(net.eval(), torch.zeros(1, 3, train.size, train.size, device=device_of(net)))
    if not logits.isfinite().all():
        raise MacsError(f"{nets.name_of(net)} gives logits that are not finite before any training; check its weights.")
    outputs = logits.shape[1]
    if outputs <= train.labels.max():
        raise MacsError(
            f"{nets.name_of(net)} has {outputs} outputs, but the labels of {train.name} go up to {train.labels.max()}."
        )
    idle = outputs - len(np.unique(train.labels))
    if idle:
        warn(
            f"{nets.name_of(net)} has {outputs} outputs, but no image of {train.name} belongs to {idle} of them; "
            f"a network for these images has {outputs - idle}."
        )


def _diverged(recipe: Recipe, method: Method, epoch: int, step: int, folder: RunFolder | None) -> str:
    """What is known about a loss that is not finite; the cause is not."""
    kept = f" {folder.path} keeps the last finished epoch." if folder else ""
    large = [*unusual(recipe), *unusual(method)]
    suspects = (
        f"what is unusually large is {', '.join(large)}"
        if large
        else f"no setting is unusually large, so check the learning rate ({recipe.lr:g}) and the starting weights"
    )
    where = f"in epoch {epoch + 1}, by step {step + 1}"
    return f"The loss of {recipe.method} is not finite any more {where}; {suspects}.{kept}"
