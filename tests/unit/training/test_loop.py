"""The progress of a training: the metrics of an epoch, and its line on standard error."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from macs.methods import Batch, Step
from macs.training.loop import Tally, TrainingProgress
from macs.training.runs import Epoch

EPOCH = Epoch(2, 0.12345, 0.8765, 0.91, 0.25, 0.4, 0.01, 3.0, 1234.5)


def test_an_epoch_is_a_line_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress("macs", epochs=3, steps=10, show=True) as progress:
        progress.step(EPOCH, 7)
        progress.epoch(EPOCH)
        progress.epoch(replace(EPOCH, epoch=3, confidence_out=0.0))
        progress.epoch(replace(EPOCH, epoch=3, confidence_out=0.0, validation_accuracy=0.75))
        progress.epoch(replace(EPOCH, epoch=3, confidence_out=0.0, validation_accuracy=0.75, validation_auroc=0.9876))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "macs epoch 2/3  loss 0.123  accuracy 87.6%  confidence 0.91 ID, 0.25 outliers  1234 images/s",
        "macs epoch 3/3  loss 0.123  accuracy 87.6%  1234 images/s",
        "macs epoch 3/3  loss 0.123  accuracy 87.6%  validation accuracy 75.0%  1234 images/s",
        "macs epoch 3/3  loss 0.123  accuracy 87.6%  validation accuracy 75.0%, AUROC 98.8%  1234 images/s",
    ]


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingProgress("macs", epochs=3, steps=10, show=False) as progress:
        progress.step(EPOCH, 7)
        progress.epoch(EPOCH)
    assert capsys.readouterr() == ("", "")


def test_the_bar_stands_where_the_steps_do() -> None:
    with TrainingProgress("macs", epochs=3, steps=10, show=True) as progress:
        progress.step(EPOCH, 7)
        (task,) = progress.bar.tasks
        assert (task.completed, task.total) == (17, 30)


def test_an_epoch_is_the_mean_over_its_images_and_the_loss_and_the_gap_over_its_steps() -> None:
    torch.manual_seed(0)
    tally, steps = Tally(4), []
    for size in (6, 2):
        batch = Batch(torch.rand(size, 3, 4, 4), torch.randint(3, (size,)), torch.rand(5, 3, 4, 4))
        step = Step(torch.rand(()), torch.randn(size, 3), torch.randn(5, 3))
        tally.add(step, batch, rate=0.1 / size)
        steps.append((batch, step))
    epoch = tally.summary()
    logits_in = np.concatenate([step.logits_in.numpy() for _, step in steps])
    logits_out = np.concatenate([step.logits_out.numpy() for _, step in steps])
    labels = np.concatenate([batch.labels.numpy() for batch, _ in steps])

    def confidences(logits: np.ndarray) -> np.ndarray:
        odds = np.exp(logits)
        return (odds / odds.sum(axis=1, keepdims=True)).max(axis=1)

    gaps = []
    for _, step in steps:
        pairs = confidences(step.logits_in.numpy())[:, None] - confidences(step.logits_out.numpy())
        gaps.append((np.maximum(pairs, 0) ** 2).mean())
    assert epoch.epoch == 5 and epoch.lr == pytest.approx(0.05)
    assert epoch.loss == pytest.approx(np.mean([float(step.loss) for _, step in steps]))
    assert epoch.accuracy == pytest.approx((logits_in.argmax(axis=1) == labels).mean())
    assert epoch.confidence_in == pytest.approx(confidences(logits_in).mean())
    assert epoch.confidence_out == pytest.approx(confidences(logits_out).mean())
    assert epoch.mcd == pytest.approx(np.mean(gaps))
    assert epoch.images_per_second * epoch.seconds == pytest.approx(8 + 10)
