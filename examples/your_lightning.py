"""The losses and metrics of macs in a LightningModule.

    python examples/your_lightning.py   # needs pip install pytorch-lightning 'macs-ood[demo]'

The training loader gives a batch of known images and a batch of outliers together; validation reads the known images
from one loader and the unknown ones from another. `loss_of` and `Separation` are those of your_loop.py.
"""

from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import CombinedLoader
from torch import Tensor, nn

import macs
from your_loop import Separation, loader_of, loss_of


class Classifier(pl.LightningModule):
    """Learns known images, and to be unsure about outliers."""

    def __init__(self, net: nn.Module, lr: float = 0.1) -> None:
        super().__init__()
        self.net, self.lr = net, lr

    def training_step(self, batch: dict[str, list[Tensor]], _: int) -> Tensor:
        images, labels = batch["known"]
        loss = loss_of(self.net, images, labels, batch["outliers"][0])
        self.log("loss", loss, prog_bar=True, batch_size=len(images))
        return loss

    def on_validation_epoch_start(self) -> None:
        self.separation = Separation()

    def validation_step(self, batch: list[Tensor], _: int, dataloader_idx: int) -> None:
        images = batch[0]
        self.separation.update(self.net(images), torch.full((len(images),), bool(dataloader_idx)))

    def on_validation_epoch_end(self) -> None:
        result = self.separation.compute()
        self.log_dict({"auroc": result.auroc, "fpr95": result.fpr95}, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=self.lr, momentum=0.9, nesterov=True)


def main(epochs: int = 5, **trainer: Any) -> Classifier:
    """The trained module; `trainer.callback_metrics` holds its last AUROC and FPR95."""
    pl.seed_everything(0)
    sets = {"known": macs.data.load("digits", "train"), "outliers": macs.data.load("digits-outliers", "train")}
    loaders = CombinedLoader({name: loader_of(images, shuffle=True) for name, images in sets.items()}, "min_size")
    held_out = [loader_of(macs.data.load(name, "test")) for name in ("digits", "digits-8-9")]
    module = Classifier(macs.nets.build("wrn-10-1", classes=8))  # any module that returns logits
    pl.Trainer(max_epochs=epochs, logger=False, enable_checkpointing=False, **trainer).fit(module, loaders, held_out)
    return module


if __name__ == "__main__":
    main()
