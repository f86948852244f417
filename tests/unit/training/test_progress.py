"""The lines of a training: on standard error, one per epoch, with what there is to say."""

from dataclasses import replace

import pytest

from macs.training.progress import TrainingProgress
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
