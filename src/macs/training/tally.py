"""The metrics of an epoch, summed step by step."""

import time

import torch

from macs.losses import confidence, mcd
from macs.methods import Batch, Step
from macs.training.runs import Epoch


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
