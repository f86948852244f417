"""Networks that train in a second, and a way to compare their weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from macs import nets
from macs.training.loop import TrainingProgress
from macs.training.recipe import Recipe
from macs.training.runs import Epoch

SHORT = Recipe(epochs=2, batch_in=32, batch_out=32, lr=0.02, precision="float32")
EPOCH: dict[str, Any] = {  # a line of metrics.jsonl
    "epoch": 1,
    "loss": 1.0,
    "accuracy": 0.5,
    "confidence_in": 0.5,
    "confidence_out": 0.5,
    "mcd": 0.1,
    "lr": 0.02,
    "seconds": 1.0,
    "images_per_second": 9.0,
}


def small_net(classes: int = 3) -> Any:
    torch.manual_seed(0)
    return nets.build("wrn-10-1", classes=classes)


def weights(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class TwoLayers(nn.Module):
    """Somebody's own network, which knows nothing of ours."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(768, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, pixels: Tensor) -> Tensor:
        return self.layers(pixels)


def stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next training stop in its second epoch."""

    def stop(self: TrainingProgress, epoch: Epoch, done: int) -> None:
        if epoch.epoch == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(TrainingProgress, "step", stop)
