"""DAL: its search against one written out image by image, its gradients, and a gamma that survives a resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import macs
from macs import nets
from macs.data import ImageSet
from macs.training.recipe import Recipe
from macs.training.runs import Epoch

SHORT = Recipe(epochs=4, batch_in=32, batch_out=32, lr=0.02, precision="float32")
WORKING = {"rho": 0.1, "beta": 0.05}  # a rho that the search can reach, so that gamma moves


@pytest.mark.parametrize("freeze", ["none", "backbone"])
def test_a_resumed_run_continues_with_its_gamma_and_ends_with_the_same_bits(
    freeze: str, known: ImageSet, outliers: ImageSet, tmp_path: Path
) -> None:
    class Killed(Exception):
        pass

    def kill(epoch: Epoch, net: nn.Module) -> None:
        if epoch.epoch == 2:
            raise Killed

    def train(folder: str, **options: Any) -> dict[str, Tensor]:
        torch.manual_seed(3)
        net = nets.build("wrn-10-1", classes=3)
        recipe = replace(SHORT, freeze=freeze, options=dict(WORKING))
        run = tmp_path / folder
        macs.finetune(net, known, outliers, method="dal", recipe=recipe, run=run, progress=False, **options)
        return net.state_dict()

    through = train("through")
    with pytest.raises(Killed):
        train("killed", on_epoch=kill)
    gamma = torch.load(tmp_path / "killed/state.pt")["method"]["gamma"]
    assert gamma not in (0.0, 0.01, torch.load(tmp_path / "through/state.pt")["method"]["gamma"])
    resumed = train("killed", resume=True)
    assert all(torch.equal(through[name], resumed[name]) for name in through)
    states = [torch.load(tmp_path / name / "state.pt")["method"] for name in ("through", "killed")]
    assert states[0] == states[1]
