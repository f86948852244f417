"""The progress of a training: the metrics of an epoch, summed step by step, and a bar that shows them.

Everything goes to standard error, so that standard output holds only results.
"""

import time
from types import TracebackType
from typing import Self

import torch
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from macs.core.console import terminal
from macs.losses import confidence, mcd
from macs.methods import Batch, Step
from macs.training.runs import Epoch


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
