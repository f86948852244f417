"""One loop for pretraining and fine-tuning, with its progress on standard error.

The randomness of an epoch depends on the seed and the epoch's number alone. So a run that was killed and resumed ends
with the same bits as an uninterrupted one, and no state of a random generator has to be stored.
"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import nn

from macs import methods, nets
from macs.core.console import terminal
from macs.core.devices import channels_last
from macs.core.errors import MacsError
from macs.core.files import user_path
from macs.data import ImageSet
from macs.data.compatibility import warn_of_guessing
from macs.losses import confidence, mcd
from macs.methods import Batch, Method, Step
from macs.training.checkpointing import Checkpointer
from macs.training.checks import check_compatibility, divergence, validation_on
from macs.training.distributed import all_present, average_norms, connect, share_start, shared_norms
from macs.training.optimisation import Optimisation
from macs.training.recipe import AUTO, AUTO_RECIPE, FROM_LIBRARY, PRETRAINING, Recipe, resolved
from macs.training.runs import Epoch, RunFolder
from macs.training.sources import NOTHING, Held, Training, load_training
from macs.training.spec import RANDOM, TrainingSpec
from macs.training.training_batches import batches_of, steps_per_epoch

READ_EVERY = 10  # steps between reads of the loss, each of which makes a GPU wait
OnEpoch = Callable[[Epoch, nn.Module], object]


def pretrain(
    net: nn.Module,
    train: ImageSet,
    *,
    method: str | Method = "msp",
    recipe: Recipe = PRETRAINING,
    validation: ImageSet | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
) -> list[Epoch]:
    """Train a classifier without outliers, in place.

    Parameters
    ----------
    net
        Any nn.Module that takes float pixels N x 3 x H x W in [0, 1] and returns logits.
    train
        ID images, with labels.
    method
        "msp" is cross-entropy; "logitnorm", or another method that needs no outliers, has the recipe's options as its
        settings.
    recipe
        The hyper-parameters.
    validation
        ID images on which the accuracy is measured after each epoch; `recipe.keep` may choose an epoch by it.
    run
        Folder to store spec, metrics and weights in.
    resume
        Continue a run that was interrupted there.
    progress
        Show a progress bar.
    on_epoch
        Called as `on_epoch(epoch, net)` after each epoch, with the network in evaluation mode; whatever it raises ends
        the training.

    Returns
    -------
    list of Epoch
        The metrics of each epoch.

    Examples
    --------
    >>> import macs
    >>> train = macs.data.load("digits", "train").split(64)[0]
    >>> net = macs.nets.build("wrn-10-1", classes=8)
    >>> len(macs.pretrain(net, train, recipe=macs.Recipe(epochs=1, batch_in=32), progress=False))
    1
    """
    if method == "msp":
        recipe = replace(recipe, options={})  # whatever the recipe was made for
    training = Training(net, train, None, _built(method, recipe), recipe, validation)
    return _train(training, run, resume, progress, on_epoch)


def finetune(
    net: nn.Module,
    train: ImageSet,
    outliers: ImageSet | None,
    *,
    method: str | Method = "macs",
    recipe: Recipe | None = None,
    validation: ImageSet | None = None,
    validation_outliers: ImageSet | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
) -> list[Epoch]:
    """Fine-tune a classifier on its own images and auxiliary outliers, in place.

    Parameters
    ----------
    net
        Any nn.Module that takes float pixels N x 3 x H x W in [0, 1] and returns logits.
    train
        ID images, with labels.
    outliers
        Images that belong to no class; None for a method that needs none.
    method
        Name of a method, or a `Method`, which has its own settings; else the recipe's options are its settings.
    recipe
        The hyper-parameters; by default `Recipe()`, the paper's or, for a network of another library, `FROM_LIBRARY`.
    validation
        ID images on which the accuracy is measured after each epoch.
    validation_outliers
        Outliers that give, with `validation`, the AUROC of the method's own score; `recipe.keep` may choose an epoch
        by it.
    run, resume, progress, on_epoch
        As in `pretrain`.

    Returns
    -------
    list of Epoch
        The metrics of each epoch.

    Examples
    --------
    >>> import macs
    >>> train = macs.data.load("digits", "train").split(64)[0]
    >>> outliers = macs.data.load("digits-outliers", "train").split(64)[0]
    >>> net = macs.nets.build("wrn-10-1", classes=8)
    >>> recipe = macs.Recipe(epochs=1, batch_in=32, batch_out=32, margin=0.5)
    >>> len(macs.finetune(net, train, outliers, method="macs", recipe=recipe, progress=False))
    1
    """
    recipe = recipe or _usual(net, method)
    training = Training(net, train, outliers, _built(method, recipe), recipe, validation, validation_outliers)
    return _train(training, run, resume, progress, on_epoch)


def _usual(net: nn.Module, method: str | Method) -> Recipe:
    """Return the recipe of a fine-tuning for which none is given."""
    if isinstance(net, nets.LibraryNet):
        return FROM_LIBRARY
    trained = nets.origin_of(net).source != RANDOM
    return Recipe(**AUTO_RECIPE) if method == AUTO and trained else Recipe()


def _built(method: str | Method, recipe: Recipe) -> Method:
    """Return the method of that name with the recipe's options as its settings, or the method that is given."""
    if isinstance(method, str):
        return methods.build(*resolved(method, recipe.options))
    if not isinstance(method, Method):
        raise MacsError(f"A method must be a name or a macs.methods.Method, not of type {type(method).__name__}.")
    if recipe.options:
        raise MacsError(
            f"The settings of {methods.name_of(method)} are given twice, by it and by the recipe's options; drop one."
        )
    return method


def run(
    spec: TrainingSpec | Training,
    folder: str | Path | None = None,
    root: str | Path | None = None,
    *,
    held: Held = NOTHING,
    resume: bool = False,
    progress: bool = True,
    on_epoch: OnEpoch | None = None,
) -> list[Epoch]:
    """Run the training that a spec describes; on one machine, the same spec gives the same weights.

    Parameters
    ----------
    spec
        The spec, or a Training, whose images and network are in memory; its network is trained in place.
    folder
        Folder to store spec, metrics and weights in.
    root
        The data root.
    held
        Images and starting networks in memory that need not be loaded.
    resume, progress, on_epoch
        As in `pretrain`.

    Returns
    -------
    list of Epoch
        The metrics of each epoch.
    """
    training = spec if isinstance(spec, Training) else load_training(spec, root, held)
    return _train(training, folder, resume, progress, on_epoch)


def _train(
    training: Training, run: str | Path | None, resume: bool, progress: bool, on_epoch: OnEpoch | None
) -> list[Epoch]:
    """Check a training, claim its run folder, and train its network in place."""
    net, recipe, method = training.net, training.recipe, training.method
    train, outliers = training.train, training.outliers
    check_compatibility(net, train, outliers, recipe, method)
    optimisation = Optimisation.of(net, recipe, train.input_shape)
    validation = validation_on(training.validation, training.validation_outliers, train, method)
    recipe.check_validation(validation is not None)
    if on_epoch is not None and not callable(on_epoch):
        raise MacsError(f"on_epoch must be a function of an epoch and a network, not a {type(on_epoch).__name__}.")
    folder = RunFolder(user_path(run)) if run is not None else None
    fabric, processes = connect(recipe, train, outliers)
    if folder:
        processes.only_first(partial(folder.claim, training.spec, resume))
    _adapt(net, train, recipe)
    model, optimizer = fabric.setup(net, optimisation.optimizer(fabric.device))

    checkpointer = Checkpointer(folder, training, optimizer, processes)
    resumed = share_start(processes, checkpointer, method)
    method = resumed or method
    epochs = range(len(checkpointer.history), recipe.epochs)
    model, batches = batches_of(training, fabric, model, epochs, progress and processes.first, processes)
    if not resumed:
        first = next(batches(0))
        with nets.running(net, first.images), methods.guarded(method):
            prepared = method.prepare(model, first)
        method = processes.by_first(lambda: prepared)
        checkpointer.save(method)

    steps = steps_per_epoch(len(train), recipe.batch_in, recipe.epoch_size)
    bar = TrainingProgress(methods.name_of(method), recipe.epochs, steps, progress and processes.first)
    with (
        bar,
        optimisation.frozen.inside(net),
        all_present(processes),
        shared_norms(net, processes, recipe.sync_bn),
        torch.random.fork_rng(),
    ):
        for number in epochs:
            torch.manual_seed(seed_of(recipe.seed, number, processes.rank))
            tally = Tally(number)
            model.train()
            for index, batch in enumerate(batches(number)):
                rate = optimisation.set_rates(optimizer, number * steps + index, steps)
                with nets.running(net, batch.images), methods.guarded(method):
                    step = method.step(model, batch)
                methods.check_step(step, method, batch)
                method = step.method or method
                optimizer.zero_grad()
                fabric.backward(step.loss)
                processes.average(weight.grad for weight in net.parameters() if weight.grad is not None)
                optimizer.step()
                tally.add(step, batch, rate)
                if index % READ_EVERY == 0 or index == steps - 1:
                    epoch = tally.summary()
                    if not math.isfinite(epoch.loss):
                        raise MacsError(divergence(recipe, method, number, index, folder))
                    bar.step(epoch, index + 1)
            average_norms(net, processes)
            net.eval()
            if validation:
                epoch = processes.by_first(partial(validation.measured, epoch, net, method, recipe.precision))
            checkpointer.add(epoch, method)
            bar.epoch(epoch)
            if on_epoch:
                processes.only_first(partial(on_epoch, epoch, net))
    net.eval()
    history = checkpointer.close()
    warn_of_guessing(history[-1].accuracy, len(train.classes), f"the training images of {train.name}")
    return history


def seed_of(seed: int, epoch: int, rank: int) -> int:
    """The seed of torch's random numbers in an epoch: dropout differs between processes that train together."""
    key = [seed, epoch, rank] if rank else [seed, epoch]
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def _adapt(net: nn.Module, train: ImageSet, recipe: Recipe) -> None:
    """Give a network the dropout of the recipe, the preparation of its images, and a fast layout of its weights."""
    if recipe.dropout is not None:
        nets.set_dropout(net, recipe.dropout, train.input_shape)
    nets.set_geometry(net, nets.preparation_for(net, train))
    channels_last(net)


class TrainingProgress:
    """A bar for the whole run with one line per epoch above it; without a terminal, only the lines."""

    def __init__(self, method: str, epochs: int, steps: int, show: bool) -> None:
        self.method, self.epochs, self.steps = method, epochs, steps
        self.console = terminal(stderr=True, quiet=not show, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal, transient=True)
        self.task = self.bar.add_task(method, total=epochs * steps, state="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def step(self, epoch: Epoch, done: int) -> None:
        state = f"epoch {epoch.epoch}/{self.epochs}  {_line(epoch)}"
        self.bar.update(self.task, completed=(epoch.epoch - 1) * self.steps + done, state=state)

    def epoch(self, epoch: Epoch) -> None:
        self.console.print(f"{self.method} epoch {epoch.epoch}/{self.epochs}  {_line(epoch)}", soft_wrap=True)


def _line(epoch: Epoch) -> str:
    parts = [f"loss {epoch.loss:.3f}", f"accuracy {epoch.accuracy:.1%}"]
    if epoch.validation_accuracy is not None:
        auroc = "" if epoch.validation_auroc is None else f", AUROC {epoch.validation_auroc:.1%}"
        parts.append(f"validation accuracy {epoch.validation_accuracy:.1%}{auroc}")
    if epoch.confidence_out:
        parts.append(f"confidence {epoch.confidence_in:.2f} ID, {epoch.confidence_out:.2f} outliers")
    return "  ".join([*parts, f"{epoch.images_per_second:.0f} images/s"])


class Tally:
    """Sums over an epoch, kept on the network's device so that a GPU does not wait at every step."""

    def __init__(self, epoch: int) -> None:
        self.epoch, self.started = epoch, time.perf_counter()
        self.steps = self.images = self.outliers = 0
        self.rate = 0.0
        self.sums = torch.zeros(5)

    @torch.no_grad()
    def add(self, step: Step, batch: Batch, rate: float) -> None:
        conf_in, conf_out = (confidence(logits) for logits in (step.logits_in, step.logits_out))
        correct = (step.logits_in.argmax(dim=1) == batch.all_labels).sum()
        parts = [step.loss, correct, conf_in.sum(), conf_out.sum(), mcd(conf_in, conf_out)]
        self.sums = self.sums.to(conf_in.device) + torch.stack([part.detach().float() for part in parts])
        self.steps += 1
        self.images += len(conf_in)
        self.outliers += len(conf_out)
        self.rate = rate

    def summary(self) -> Epoch:
        loss, correct, conf_in, conf_out, gap = self.sums.tolist()
        seconds = time.perf_counter() - self.started
        return Epoch(
            epoch=self.epoch + 1,
            loss=loss / self.steps,
            accuracy=correct / self.images,
            confidence_in=conf_in / self.images,
            confidence_out=conf_out / max(self.outliers, 1),
            mcd=gap / self.steps,
            lr=self.rate,
            seconds=seconds,
            images_per_second=(self.images + self.outliers) / seconds,
        )
