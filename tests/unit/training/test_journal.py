"""What is kept of a training: the last epoch or the best one, and no kill changes which."""

from dataclasses import replace
from pathlib import Path

import torch

from macs import methods
from macs.data import ImageSet
from macs.training.journal import Journal
from macs.training.runs import Epoch, RunFolder, kept_epoch
from short_training import SHORT, small_net

EPOCH = Epoch(1, 0.5, 0.5, 0.5, 0.5, 0.1, 0.01, 1.0, 9.0)


def epochs(*measured: tuple[float, float | None]) -> list[Epoch]:
    return [
        replace(EPOCH, epoch=number + 1, validation_accuracy=accuracy, validation_auroc=auroc)
        for number, (accuracy, auroc) in enumerate(measured)
    ]


def test_the_best_epoch_has_the_highest_mean_and_is_the_first_of_equals() -> None:
    history = epochs((0.8, 0.7), (0.7, 0.9), (0.9, 0.7), (0.95, 0.6))
    assert kept_epoch(history, "best") is history[1]
    assert kept_epoch(history, "last") is history[3]
    assert kept_epoch(epochs((0.8, None), (0.9, None), (0.9, None)), "best").epoch == 2


def test_without_a_folder_or_a_state_there_is_nothing_to_resume(known: ImageSet, tmp_path: Path) -> None:
    net, method = small_net(), methods.build("msp")
    for folder in (None, RunFolder(tmp_path)):
        journal = Journal(folder, net, torch.optim.SGD(net.parameters()), SHORT, known, (None,))
        assert journal.resumed(method) is None and journal.history == []
